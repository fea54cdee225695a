package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

func (a *app) migrateCommand() *cobra.Command {
	var k kindFlags
	cmd := a.durabilityFlag(&cobra.Command{
		Use:   "migrate QUEUE...",
		Short: "Make the tables of queues, or bring them up to date",
		Long: `Makes the tables of queues, or brings them up to date, each queue in one
transaction. It may be run again at any time, also while the queue is in use.

With --ordered the queues keep the messages of a key in order, as Config.Kind of the
application says. Kind and number of slots are for ever; a queue that is there
needs neither flag. --dead-key-holds is changed by migrating with --ordered again.`,
		Example: `  chanq migrate --db jobs.db mail invoices
  chanq migrate --db jobs.db --ordered --slots 16 payments
  chanq migrate --dsn 'sqlserver://sa:password@localhost?database=shop' --schema jobs mail`,
		Args: atLeast(1, "one queue or more"),
		RunE: func(cmd *cobra.Command, queues []string) error {
			for _, queue := range queues {
				if err := a.checkName(queue); err != nil {
					return err
				}
			}
			if err := k.check(); err != nil {
				return err
			}
			c, err := a.connect(cmd.Context(), mayCreate)
			if err != nil {
				return err
			}
			defer c.Close()
			for _, queue := range queues {
				config, err := k.config(cmd.Context(), c, queue, a.storingConfig(c))
				if err != nil {
					return err
				}
				if err := chanq.Migrate(cmd.Context(), c.DB, queue, config); err != nil {
					return err
				}
				if a.output == "json" {
					err = a.json(map[string]any{"queue": queue, "version": sqlbatch.Version})
				} else {
					_, err = fmt.Fprintf(a.out, "queue %s has version %d\n", queue, sqlbatch.Version)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	})
	k.add(cmd)
	return cmd
}

// checkName finds a wrong queue or schema before a file is made for it.
func (a *app) checkName(queue string) error {
	if err := sqlbatch.CheckNames(sqlbatch.Names{Schema: a.schema, Queue: queue}); err != nil {
		return usage("%w", err)
	}
	return nil
}
