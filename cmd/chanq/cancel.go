package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) cancelCommand() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "cancel QUEUE [ID...]",
		Short: "Delete messages that are ready, scheduled or leased",
		Long: `Deletes the messages with the IDs or deduplication keys, if they are ready, scheduled or
leased. A running handler's context is cancelled within about a second. chanq purge
deletes dead messages.`,
		Example: `  chanq cancel --db jobs.db mail 0199c0de-0000-7000-8000-000000000000
  chanq cancel --db jobs.db --dedup-key report-7 mail`,
		Args: atLeast(1, "a queue, and IDs or --dedup-key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args[1:])
			switch {
			case err != nil:
				return err
			case len(ids) == 0 && len(keys) == 0:
				return usage("cancel: give a queue, and IDs or --dedup-key")
			case len(ids) > 0 && len(keys) > 0:
				return usage("IDs exclude --dedup-key: give one of both")
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				if len(keys) > 0 {
					return a.cancelKeys(cmd.Context(), q, keys)
				}
				return a.cancelIDs(cmd.Context(), q, ids)
			})
		},
	}
	cmd.Flags().StringArrayVar(&keys, "dedup-key", nil, "the message with this deduplication `key`; repeat the flag for more")
	return cmd
}

func (a *app) cancelIDs(ctx context.Context, q *chanqadmin.Queue, ids []chanq.ID) error {
	return a.change(ctx, q, (*chanqadmin.Queue).Cancel, chanqadmin.Select{IDs: ids}, change{}, "cancelled", "not ready, scheduled or leased")
}

// cancelKeys cancels the messages with these deduplication keys. It is an error if a key has none.
func (a *app) cancelKeys(ctx context.Context, q *chanqadmin.Queue, keys []string) error {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	ids, err := q.Find(ctx, keys...)
	if err != nil {
		return err
	}
	if err := a.cancelIDs(ctx, q, append([]chanq.ID{}, ids...)); err != nil {
		return err
	}
	if missing := len(keys) - len(ids); missing > 0 {
		return fmt.Errorf("queue %s: %s without a ready, scheduled or leased message", q.Name(), count(missing, "key"))
	}
	return nil
}
