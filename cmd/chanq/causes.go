package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) causesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "causes QUEUE",
		Short: "Group failed messages by cause",
		Long: `Groups the dead messages of a queue by cause and fingerprint, and, as failing, those
that wait for a retry. Errors that differ in numbers, identifiers or quoted parts have the same
fingerprint. EXAMPLE is the message that failed last. Select a group of dead messages with
--cause and --fingerprint of chanq redrive, purge and peek, and show a failing one with chanq
peek --state scheduled --fingerprint.`,
		Example: `  chanq causes --db jobs.db mail
  chanq redrive --db jobs.db --cause rejected --fingerprint 01c0ffee01c0ffee --dry-run mail`,
		Args: exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withQueue(cmd.Context(), args[0], func(q *chanqadmin.Queue) error {
				causes, err := q.Causes(cmd.Context())
				if err != nil {
					return err
				}
				failing, err := q.Failing(cmd.Context())
				if err != nil {
					return err
				}
				if a.output == "json" {
					return a.json(struct {
						chanqadmin.Causes
						Failing chanqadmin.Causes `json:"failing"`
					}{causes, failing})
				}
				return a.causes(causes, failing)
			})
		},
	}
}

func (a *app) causes(causes, failing chanqadmin.Causes) error {
	rows := [][]string{{"CAUSE", "FINGERPRINT", "MESSAGES", "FIRST", "LAST", "EXAMPLE", "LAST ERROR"}}
	for _, g := range slices.Concat(failing.Groups, causes.Groups) {
		messages := strconv.Itoa(g.Messages)
		if g.More {
			messages += "+"
		}
		rows = append(rows, []string{cmp.Or(g.Cause.String(), "failing"), g.Fingerprint, messages, clock(g.First), clock(g.Last), g.Example.String(), brief(g.LastError, 60)})
	}
	if err := a.table(rows); err != nil || !causes.More && len(failing.Groups) < chanqadmin.MostGroups {
		return err
	}
	_, err := fmt.Fprintf(a.out, "and more groups than %d\n", chanqadmin.MostGroups)
	return err
}
