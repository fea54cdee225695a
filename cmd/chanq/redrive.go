package main

import (
	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) redriveCommand() *cobra.Command {
	c := change{selection: selection{state: string(chanqadmin.StateDead)}}
	var yes bool
	cmd := &cobra.Command{
		Use:   "redrive QUEUE [ID...]",
		Short: "Make dead messages ready again, with no attempts counted",
		Long: `Makes dead messages ready again, with no attempts counted: those that the flags select
or all, oldest first, after asking; or those with the IDs, without asking. A message
whose dedup key is in the queue stays dead. --per-second keeps a large redrive from
flooding your consumers.`,
		Example: `  chanq redrive --db jobs.db mail
  chanq redrive --db jobs.db --yes mail
  chanq redrive --db jobs.db --cause exhausted --dry-run mail
  chanq redrive --db jobs.db --cause rejected --fingerprint 01c0ffee01c0ffee --per-second 20 mail
  chanq redrive --db jobs.db mail 0199c0de-0000-7000-8000-000000000000`,
		Args: atLeast(1, "a queue, and IDs or none for all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args[1:])
			if err != nil {
				return err
			}
			if err := c.check(ids); err != nil {
				return err
			}
			s, err := c.read(ids)
			if err != nil {
				return err
			}
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				if !yes && !c.dryRun && ids == nil {
					if err := a.confirmChange(cmd.Context(), q, "Redrive", (*chanqadmin.Queue).Redrive, s, c.limit); err != nil {
						return err
					}
				}
				return a.change(cmd.Context(), q, (*chanqadmin.Queue).Redrive, s, c, "redriven", "not dead, or with a dedup key that is in the queue")
			})
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
