package main

import (
	"cmp"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) logCommand() *cobra.Command {
	n := 0
	cmd := &cobra.Command{
		Use:   "log [QUEUE]",
		Short: "Show who changed queues, when, and why",
		Long: `Shows the latest changes of a queue, or of all, up to 1,000 of each, for 90 days. ENDED is -
while a change runs, or if its program has crashed.`,
		Example: `  chanq log --db jobs.db
  chanq log --db jobs.db -n 100 -o json mail`,
		Args: between(0, 1, "one queue or none"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > 10_000 {
				return usage("-n is %d: must be from 1 to 10,000", n)
			}
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := chanqadmin.Log(cmd.Context(), c.DB, append(args, "")[0], n, a.queueConfig(c))
			if err != nil {
				return err
			}
			return a.logged(list)
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many changes")
	return cmd
}

func (a *app) logged(list []chanqadmin.Logged) error {
	rows := [][]string{{"AT", "ENDED", "QUEUE", "WHO", "WHAT", "WHICH", "MESSAGES", "WHY", "ERROR"}}
	for _, l := range list {
		if a.output == "json" {
			if err := a.json(l); err != nil {
				return err
			}
			continue
		}
		row := []string{clock(l.At), clock(l.Ended), brief(l.Queue, 40), brief(l.Actor, 40), brief(l.What, 20), brief(l.Which, 80), strconv.Itoa(l.Messages), brief(l.Reason, 60), brief(l.Error, 60)}
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}
		rows = append(rows, row)
	}
	if a.output == "json" {
		return nil
	}
	return a.table(rows)
}
