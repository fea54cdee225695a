package main

import (
	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run QUEUE ID...",
		Short: "Make scheduled messages due now",
		Long: `Makes the messages with the IDs due now, if they are scheduled or wait for a retry.
Their attempts stay.`,
		Example: `  chanq run --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args:    atLeast(2, "a queue, and IDs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args[1:])
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				return a.change(cmd.Context(), q, (*chanqadmin.Queue).RunNow, chanqadmin.Select{IDs: ids}, change{}, "due", "not scheduled")
			})
		},
	}
}
