package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) purgeCommand() *cobra.Command {
	var state string
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge QUEUE --state STATE",
		Short: "Delete all messages of a state",
		Long: `Deletes all messages of a state, after asking. There is no way back. Leased
messages are deleted under the hands of their consumers, which learn of it when
they settle.`,
		Example: `  chanq purge --db jobs.db --state dead mail
  chanq purge --db jobs.db --state done --yes mail`,
		Args: exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if state == "" {
				return usage("purge: give --state: ready, scheduled, leased, dead or done")
			}
			s, err := parseState(state)
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				if !yes {
					if err := a.confirmPurge(cmd.Context(), q, s); err != nil {
						return err
					}
				}
				n, err := q.Purge(cmd.Context(), s)
				return a.counted(n, "purged", err)
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "`state`: ready, scheduled, leased, dead or done")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) confirmPurge(ctx context.Context, q *chanqadmin.Queue, s chanqadmin.State) error {
	stats, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	n := map[chanqadmin.State]int{
		chanqadmin.StateReady: stats.Ready, chanqadmin.StateScheduled: stats.Scheduled, chanqadmin.StateLeased: stats.Leased,
		chanqadmin.StateDead: stats.Dead, chanqadmin.StateDone: stats.Done,
	}[s]
	many := fmt.Sprint(n)
	if n >= stats.Limit {
		many += " or more"
	}
	return a.confirm(ctx, fmt.Sprintf("Delete all %s messages of queue %s, %s now?", s, q.Name(), many))
}

var errNotConfirmed = errors.New("not confirmed; nothing was deleted")

// confirm asks; only yes is yes.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // ends with an answer, or with the process
		line, _ := bufio.NewReader(a.in).ReadString('\n') // the end of the input is no yes
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return errNotConfirmed
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return ctx.Err()
	}
}
