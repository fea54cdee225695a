package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) releaseCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "release QUEUE CONSUMER",
		Short: "End the leases of a consumer that is not heard",
		Long: `Ends the leases of a consumer, by its ID, so that its messages are delivered again now. chanq
doctor, and chanq peek --state leased -o json, show the ID. The consumer must not have been heard for 25 s.
Each lease counts as expired. In an ordered queue the consumer also loses its slots.

If a handler of that consumer still runs, two handlers work on the same message: end its process
first. What it settles later is refused.`,
		Example: `  chanq release --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args:    exactly(2, "a queue, and the ID of a consumer"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := chanq.ParseID(args[1])
			if err != nil {
				return usage("%q is not the ID of a consumer", args[1])
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				return a.release(cmd.Context(), q, id, yes)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) release(ctx context.Context, q *chanqadmin.Queue, consumer chanq.ID, yes bool) error {
	found, err := q.Release(ctx, consumer, chanqadmin.Change{DryRun: true})
	if err != nil {
		return err
	}
	question := fmt.Sprintf("End the leases of %s? A handler might still run.", count(found.Messages, "message"))
	if !yes {
		if err := a.confirm(ctx, question); err != nil {
			return err
		}
	}
	done, err := q.Release(ctx, consumer, chanqadmin.Change{Actor: actor()})
	err = a.counted(done.Messages, "released", err)
	if done.More {
		_, said := fmt.Fprintln(a.err, "there may be more: repeat the command")
		err = errors.Join(err, said)
	}
	return err
}
