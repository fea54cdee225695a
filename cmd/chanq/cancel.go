package main

import (
	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel QUEUE ID...",
		Short: "Delete messages that are ready, scheduled or leased",
		Long: `Deletes the messages with the IDs, if they are ready, scheduled or leased. A consumer
that holds one reports a lost lease. chanq purge deletes dead messages.`,
		Example: `  chanq cancel --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args:    atLeast(2, "a queue, and IDs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args[1:])
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				return a.change(cmd.Context(), q, (*chanqadmin.Queue).Cancel, chanqadmin.Select{IDs: ids}, change{}, "cancelled", "not ready, scheduled or leased")
			})
		},
	}
}
