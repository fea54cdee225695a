package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) causesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "causes QUEUE",
		Short: "Group dead messages by cause",
		Long: `Groups the dead messages of a queue by cause and fingerprint, the largest group
first. Errors that differ in numbers, identifiers or quoted parts have the same
fingerprint. EXAMPLE is the message that died last. Select a group with --cause and
--fingerprint of chanq redrive, purge and peek.`,
		Example: `  chanq causes --db jobs.db mail
  chanq redrive --db jobs.db --cause rejected --fingerprint 01c0ffee01c0ffee --dry-run mail`,
		Args: exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				causes, err := q.Causes(cmd.Context())
				if err != nil {
					return err
				}
				if a.output == "json" {
					return a.json(causes)
				}
				return a.causes(causes)
			})
		},
	}
}

func (a *app) causes(causes chanqadmin.Causes) error {
	rows := [][]string{{"CAUSE", "FINGERPRINT", "MESSAGES", "FIRST", "LAST", "EXAMPLE", "LAST ERROR"}}
	for _, g := range causes.Groups {
		messages := strconv.Itoa(g.Messages)
		if g.More {
			messages += "+"
		}
		rows = append(rows, []string{g.Cause.String(), g.Fingerprint, messages, clock(g.First), clock(g.Last), g.Example.String(), brief(g.LastError, 60)})
	}
	if err := a.table(rows); err != nil || !causes.More {
		return err
	}
	_, err := fmt.Fprintf(a.out, "and more groups than %d\n", chanqadmin.MostGroups)
	return err
}
