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
		Long: `Ends the leases of a consumer that was not heard for 25 s: its messages are delivered again
now. chanq doctor shows its ID. If its handler still runs, two handlers work on a message.`,
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
	slots := ""
	if spec, _ := q.Opened(); spec.Kind == chanq.KindOrdered {
		slots = ", and free its slots with messages that are not counted"
	}
	question := fmt.Sprintf("End the leases of %s%s? A handler might still run.", count(found.Messages, "message"), slots)
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
