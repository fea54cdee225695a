package main

import (
	"context"
	"database/sql"
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
		Long: `Makes the tables of queues, or brings them up to date, each queue in one transaction.
You can run it again at any time, even while programs use the queue.

With --ordered the queues keep the messages of a key in order, as Spec.Kind of the
application says. Kind and number of slots are permanent; an existing queue
needs neither flag. chanq configure changes the other settings, --dead-key for example.

With --shard a queue is one of several that a program opens together, by package chanqshards, each in
another database. Migrate shard 0 first: it prints the ID of the set, which the others get
by --set. This is also permanent.`,
		Example: `  chanq migrate --db jobs.db mail invoices
  chanq migrate --db jobs.db --ordered --slots 16 payments
  chanq migrate --db a.db --shard 0/2 mail
  chanq migrate --db b.db --shard 1/2 --set 01a2071b-3526-73dc-a4fd-9e770ea15f13 mail
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
				if err := a.printMigrated(cmd.Context(), c, queue, config); err != nil {
					return err
				}
			}
			return nil
		},
	})
	k.add(cmd)
	return cmd
}

// printMigrated prints the kind of a migrated queue.
func (a *app) printMigrated(ctx context.Context, c *connection, queue string, config chanq.Config) error {
	reported := map[string]any{"queue": queue, "version": sqlbatch.Version}
	text := fmt.Sprintf("queue %s has version %d", queue, sqlbatch.Version)
	if config.Shard.Count > 0 {
		found, err := chanq.StoredConfig(ctx, c.DB, queue, config)
		if err != nil {
			return err
		}
		reported["shard"] = found.Shard
		text += fmt.Sprintf(", and is %v", found.Shard)
	}
	if a.output == "json" {
		return a.json(reported)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// checkName rejects an invalid queue or schema before a file is created for it.
func (a *app) checkName(queue string) error {
	if err := sqlbatch.CheckNames(sqlbatch.Names{Schema: a.schema, Queue: queue}); err != nil {
		return usage("%w", err)
	}
	return nil
}

// migrateTablesCommand makes the tables of a package that is built on chanq.
func (a *app) migrateTablesCommand(parent, what string, migrate func(context.Context, *sql.DB, chanq.Config) error) *cobra.Command {
	return a.durabilityFlag(&cobra.Command{
		Use:     "migrate",
		Short:   "Make the tables of " + what + ", or bring them up to date",
		Long:    "Makes the tables of " + what + ", or brings them up to date.",
		Example: "  chanq " + parent + " migrate --db jobs.db",
		Args:    exactly(0, "no argument: all queues share the tables"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context(), mayCreate)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := migrate(cmd.Context(), c.DB, a.storingConfig(c)); err != nil {
				return err
			}
			if a.output == "json" {
				return a.json(map[string]any{"migrated": true})
			}
			_, err = fmt.Fprintln(a.out, "the tables of "+what+" are up to date")
			return err
		},
	})
}
