package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var d doctoring
	cmd := &cobra.Command{
		Use:   "doctor [QUEUE...]",
		Short: "Check the health of queues, and print a remedy for each problem",
		Long: `Checks the health of a database and its queues, and prints a remedy for each problem.
It checks round trips, clock, version and settings, a pooler in between, long
transactions, sessions that wait, and dead rows. For the named queues, or for all, it
checks the tables, and finds what docs/operate/runbook.md lists.

It changes nothing. A check that this login has no permission for is reported as unseen: on
PostgreSQL a member of pg_monitor, on SQL Server a login with VIEW SERVER STATE has all of them.
Run it with the DSN of the program that has the problem: some settings belong to a role or a
connection.

Exit status 1 means that a check failed (X FAIL): messages are lost, or are not delivered. With
warnings it is 0.`,
		Example: `  chanq doctor --db jobs.db
  chanq doctor --db jobs.db --quiet --late 5m
  chanq doctor --dsn @/run/secrets/shop-dsn -o json mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			if err := d.limits.Check(); err != nil {
				return usage("--stuck, --late: %w", err)
			}
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.doctor(cmd.Context(), c, queues, d)
		},
	}
	cmd.Flags().BoolVarP(&d.quiet, "quiet", "q", false, "print only warnings and failures, one line each")
	limitFlags(cmd, &d.limits)
	return cmd
}

// doctoring are the flags of doctor.
type doctoring struct {
	quiet  bool
	limits chanqfindings.Limits
}

// limitFlags adds the flags that say when a queue is in trouble.
func limitFlags(cmd *cobra.Command, l *chanqfindings.Limits) {
	cmd.Flags().DurationVar(&l.Stuck, "stuck", 0, "how long a message may be leased before it is stuck (default 1m, or ten times as long as usual)")
	cmd.Flags().DurationVar(&l.Late, "late", 0, "how long the oldest ready message may wait (default any time)")
}

// errUnwell is returned after all findings have been printed.
var errUnwell = errors.New("doctor: at least one check failed: the output above has the remedies")

func (a *app) doctor(ctx context.Context, c *connection, queues []string, d doctoring) error {
	config := a.queueConfig(c)
	config.Durability = a.durability() // one of the checks tests this setting
	findings, err := doctor.Examine(ctx, doctor.Patient{DB: c.DB, Dialect: c.dialect, Config: config, Queues: queues, Limits: d.limits})
	if err != nil {
		return err
	}
	for i := range findings { // drivers include their input in errors
		findings[i].Found, findings[i].Remedy = a.redact(findings[i].Found), a.redact(findings[i].Remedy)
	}
	shown := findings
	if d.quiet {
		shown = slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Status != doctor.Warning && f.Status != doctor.Failure })
	}
	if a.output == "json" {
		err = a.json(append([]doctor.Finding{}, shown...)) // not null
	} else {
		err = a.showFindings(shown, d.quiet)
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

// showFindings writes a line for each finding, with the remedy of each problem under it, or behind it.
func (a *app) showFindings(findings []doctor.Finding, behind bool) error {
	arrow := "\n          → "
	if behind {
		arrow = " → "
	}
	marks := map[doctor.Status]string{doctor.OK: "  ok    ", doctor.Warning: "! warn  ", doctor.Failure: "X FAIL  ", doctor.Unseen: "? unseen"}
	colours := map[doctor.Status]string{doctor.Warning: yellow, doctor.Failure: red, doctor.Unseen: faint}
	for _, f := range findings {
		where := f.Check
		if f.Queue != "" {
			where = f.Queue + ": " + f.Check
		}
		remedy := ""
		if f.Remedy != "" {
			remedy = arrow + visible(f.Remedy)
		}
		if err := a.line(colours[f.Status], fmt.Sprintf("%s  %s: %s%s", marks[f.Status], visible(where), visible(f.Found), remedy)); err != nil {
			return err
		}
	}
	return nil
}
