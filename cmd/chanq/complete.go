package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

// completeTimeout is for how long a shell waits for the names of queues.
const completeTimeout = 2 * time.Second

// completions lists for the shell what each place of a command line may have: see chanq completion --help.
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
		case names && cmd.Name() != "migrate" && cmd.Name() != "schema": // which name new ones
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
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// completeQueues names the queues of the database that the command line, or CHANQ_DSN, names; those
// that stand there already are left out. Where that fails there is nothing to complete.
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
