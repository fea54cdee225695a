package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
)

func (a *app) batchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "batch",
		// it runs only one of its commands
		DisableFlagsInUseLine: true,
		Short:                 "List batches of jobs",
		Long: `Shows the batches of jobs that programs have sent by package chanqjobs. When all jobs of a
batch have left its queue, its last job is sent there.`,
		Example: `  chanq batch list --db jobs.db
  chanq batch status --db jobs.db 0199c0de-0000-8000-8000-000000000000`,
		Args: exactly(0, "one of its commands: list or status"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.listBatchesCommand(), a.batchStatusCommand())
	return cmd
}

// withBatches calls f with the batches of the database.
func (a *app) withBatches(ctx context.Context, f func(*chanqjobs.BatchTable) error) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	batches, err := chanqjobs.OpenBatchTable(ctx, c.DB, a.queueConfig(c))
	if err != nil {
		return err
	}
	return f(batches)
}

// batchLine is the JSON of a batch.
type batchLine struct {
	ID    chanq.ID   `json:"id"`
	Queue string     `json:"queue"`
	Done  string     `json:"done"`
	Sent  int        `json:"sent"`
	Left  *int       `json:"left,omitempty"`
	Dead  *int       `json:"dead,omitempty"`
	Made  time.Time  `json:"made"`
	Ended *time.Time `json:"ended,omitempty"`
}

func batchLineOf(b chanqjobs.Batch) batchLine {
	line := batchLine{ID: b.ID, Queue: b.Queue, Done: b.Done, Sent: b.Sent, Made: b.Made}
	if !b.Ended.IsZero() {
		line.Ended = &b.Ended
	}
	return line
}

func (a *app) listBatchesCommand() *cobra.Command {
	n := 20
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the latest batches",
		Long: `Lists the latest batches of all queues: how many jobs each was sent with, the type of its
last job, and when that was sent. A batch is kept for 7 days after that.`,
		Example: "  chanq batch list --db jobs.db",
		Args:    exactly(0, "no argument: it lists the batches of all queues"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 {
				return usage("--number is %d: must be positive", n)
			}
			return a.withBatches(cmd.Context(), func(batches *chanqjobs.BatchTable) error {
				list, err := batches.List(cmd.Context(), n)
				if err != nil {
					return err
				}
				lines := []batchLine{} // not null
				rows := [][]string{{"ID", "QUEUE", "JOBS", "LAST JOB", "MADE", "ENDED"}}
				for _, b := range list {
					lines = append(lines, batchLineOf(b))
					rows = append(rows, []string{b.ID.String(), b.Queue, fmt.Sprint(b.Sent), brief(b.Done, 60), clock(b.Made), clock(b.Ended)})
				}
				if a.output == "json" {
					return a.json(lines)
				}
				return a.table(rows)
			})
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", n, "how many batches")
	return cmd
}

func (a *app) batchStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status ID",
		Short: "Show what is left of a batch",
		Long: `Shows how many jobs of a batch are in the queue, which is counted up to 10,000, and how
many are dead.`,
		Example: "  chanq batch status --db jobs.db 0199c0de-0000-8000-8000-000000000000",
		Args:    exactly(1, "the ID of a batch"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := chanq.ParseID(args[0])
			if err != nil {
				return usage("%q is not the ID of a batch", args[0])
			}
			return a.withBatches(cmd.Context(), func(batches *chanqjobs.BatchTable) error {
				s, err := batches.Status(cmd.Context(), id)
				if err != nil {
					return err
				}
				if a.output == "json" {
					line := batchLineOf(s.Batch)
					line.Left, line.Dead = &s.Left, &s.Dead
					return a.json(line)
				}
				return a.table([][]string{
					{"QUEUE", "JOBS", "LEFT", "DEAD", "LAST JOB", "MADE", "ENDED"},
					{s.Queue, fmt.Sprint(s.Sent), fmt.Sprint(s.Left), fmt.Sprint(s.Dead), brief(s.Done, 60), clock(s.Made), clock(s.Ended)},
				})
			})
		},
	}
}

func (a *app) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs",
		// it runs only one of its commands
		DisableFlagsInUseLine: true,
		Short:                 "Make the tables of package chanqjobs",
		Long:                  "Makes the tables of package chanqjobs: batches, results and progress of jobs, and Once.",
		Example:               "  chanq jobs migrate --db jobs.db",
		Args:                  exactly(0, "its command: migrate"),
		RunE:                  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.migrateTablesCommand("jobs", "jobs", chanqjobs.Migrate))
	return cmd
}
