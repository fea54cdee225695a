package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [QUEUE...]",
		Short: "Check the health of queues, and print a remedy for each problem",
		Long: `Checks the health of a database and its queues, and prints a remedy for each problem.
It checks round trips, clock, version and settings, a pooler in between, long
transactions, sessions that wait, and dead rows. For the named queues, or for all, it
checks the tables, their content, and whether a consumer runs.

It changes nothing. A check that this login has no permission for is reported as unseen: on
PostgreSQL a member of pg_monitor, on SQL Server a login with VIEW SERVER STATE has all of them.
Run it with the DSN of the program that has the problem: some settings belong to a role or a
connection.

Exit status 1 means that messages are lost, or are not consumed.`,
		Example: `  chanq doctor --db jobs.db
  chanq doctor --dsn @/run/secrets/shop-dsn -o json mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.doctor(cmd.Context(), c, queues)
		},
	}
}

// errUnwell is returned after all findings have been printed.
var errUnwell = errors.New("doctor: at least one check failed: the output above has the remedies")

func (a *app) doctor(ctx context.Context, c *connection, queues []string) error {
	config := a.queueConfig(c)
	config.Durability = a.durability() // one of the checks tests this setting
	findings, err := doctor.Examine(ctx, doctor.Patient{DB: c.DB, Dialect: c.dialect, Config: config, Queues: queues})
	if err != nil {
		return err
	}
	for i := range findings { // drivers include their input in errors
		findings[i].Found, findings[i].Remedy = a.redact(findings[i].Found), a.redact(findings[i].Remedy)
	}
	if a.output == "json" {
		err = a.json(findings)
	} else {
		err = a.showFindings(findings)
	}
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Status == doctor.Failure {
			return errUnwell
		}
	}
	return nil
}

// showFindings writes a line for each finding, and the remedy under each problem.
func (a *app) showFindings(findings []doctor.Finding) error {
	marks := map[doctor.Status]string{doctor.OK: "  ok    ", doctor.Warning: "! warn  ", doctor.Failure: "X FAIL  ", doctor.Unseen: "? unseen"}
	for _, f := range findings {
		where := f.Check
		if f.Queue != "" {
			where = f.Queue + ": " + f.Check
		}
		if _, err := fmt.Fprintf(a.out, "%s  %s: %s\n", marks[f.Status], visible(where), visible(f.Found)); err != nil {
			return err
		}
		if f.Remedy == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "          → %s\n", visible(f.Remedy)); err != nil {
			return err
		}
	}
	return nil
}
