package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List dead messages, make them ready again, delete them",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("dead: unknown command %q: must be list, redrive or purge", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.deadListCommand(), a.deadRedriveCommand(), a.deadPurgeCommand())
	return cmd
}

func (a *app) deadListCommand() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:     "list QUEUE",
		Short:   "List messages that were set aside, latest first",
		Example: `  chanq dead list --db jobs.db mail`,
		Args:    exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPeek(n); err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				return a.peek(cmd.Context(), q, chanqadmin.StateDead, n, chanq.ID{})
			})
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 100, "how many messages")
	return cmd
}

func (a *app) deadRedriveCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "redrive QUEUE [ID...]",
		Short: "Make dead messages ready again, with no attempts counted",
		Long: `Makes dead messages ready again, with no attempts counted: those with the IDs, or
all, oldest first. A message whose dedup key is in the queue again stays dead.`,
		Example: `  chanq dead redrive --db jobs.db mail
  chanq dead redrive --db jobs.db --limit 10 mail
  chanq dead redrive --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args: atLeast(1, "a queue, and IDs or none for all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage("--limit is %d: must be 0 (all) or more", limit)
			}
			if limit > 0 && len(args) > 1 {
				return usage("--limit is not for messages that are named by IDs")
			}
			ids, err := parseIDs(args[1:])
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				return a.redrive(cmd.Context(), q, limit, ids)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "how many messages at most (default all)")
	return cmd
}

func (a *app) redrive(ctx context.Context, q *chanqadmin.Queue, limit int, ids []chanq.ID) error {
	if len(ids) == 0 {
		n, err := q.Redrive(ctx, limit)
		return a.counted(n, "redriven", err)
	}
	moved, err := q.RedriveIDs(ctx, ids...)
	return a.changed(q, "redriven", "not dead, or with a dedup key that is in the queue", ids, moved, err)
}

func (a *app) deadPurgeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "purge QUEUE ID...",
		Short:   "Delete dead messages by their IDs",
		Long:    `Deletes the dead messages with the IDs. All of them: chanq purge --state dead.`,
		Example: `  chanq dead purge --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args:    atLeast(2, "a queue, and IDs"),
		RunE:    a.byIDs("purged", "not dead", (*chanqadmin.Queue).PurgeIDs),
	}
}

// counted says how many messages were changed, also when not all could be.
func (a *app) counted(n int, what string, err error) error {
	var written error
	if a.output == "json" {
		written = a.json(map[string]int{what: n})
	} else {
		_, written = fmt.Fprintf(a.out, "%s %s\n", count(n, "message"), what)
	}
	if err != nil {
		return err
	}
	return written
}
