package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

// completeTimeout is how long a shell waits for the names of queues.
const completeTimeout = 2 * time.Second

// completions lists the possible values of each argument for the shell: see chanq completion --help.
func (a *app) completions(root *cobra.Command) {
	words := map[string][]string{
		"output":   {"text", "json"},
		"dialect":  {"sqlserver", "postgres", "sqlite"},
		"priority": {"low", "normal", "high", "urgent"},
		"state":    {string(chanqadmin.StateReady), string(chanqadmin.StateScheduled), string(chanqadmin.StateLeased), string(chanqadmin.StateDead), string(chanqadmin.StateDone)},
	}
	for flag, values := range words {
		registerWords(root, flag, values)
	}
	everyCommand(root, func(cmd *cobra.Command) {
		for flag, values := range words {
			registerWords(cmd, flag, values)
		}
		switch names := strings.Contains(cmd.Use, "QUEUE"); {
		case names && cmd.Name() != "migrate" && cmd.Name() != "schema": // these two take new names
			cmd.ValidArgsFunction = a.completeQueues
		case names:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	})
}

func everyCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		do(sub)
		everyCommand(sub, do)
	}
}

func registerWords(cmd *cobra.Command, flag string, values []string) {
	if cmd.LocalNonPersistentFlags().Lookup(flag) == nil && cmd.PersistentFlags().Lookup(flag) == nil {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// completeQueues returns the names of the queues of the database that the command line, or CHANQ_DSN,
// names. It omits names that are already on the command line. After an error there are no completions.
func (a *app) completeQueues(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	one := !strings.Contains(cmd.Use, "QUEUE...")
	if one && len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	names, err := chanqadmin.Queues(ctx, c.DB, a.queueConfig(c))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begun) || slices.Contains(args, n) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
