package main

import (
	"context"
	"fmt"
	"time"
	_ "time/tzdata" // resume computes the next tick, in the zone of the schedule

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
)

func (a *app) scheduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedule",
		// it runs only one of its commands
		DisableFlagsInUseLine: true,
		Short:                 "List, pause and run schedules",
		Long: `Lists, pauses and runs the schedules that programs have stored by package chanqcron.
A schedule belongs to a queue; its name is unique in the schema.`,
		Example: `  chanq schedule list --db jobs.db
  chanq schedule pause --db jobs.db --reason 'the printer is broken' nightly`,
		Args: exactly(0, "one of its commands: list, pause, resume, run, remove or migrate"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	reason := ""
	pause := a.schedulesCommand("pause", "Stop the ticks of schedules",
		`Stops the ticks of schedules, in every process. A deployment does not end the pause.`, "paused",
		&reason, func(ctx context.Context, s *chanqcron.Schedules, name string) error {
			return s.Pause(ctx, name, actor(), reason)
		})
	pause.Flags().StringVar(&reason, "reason", "", "`text` for other operators, which chanq schedule list shows")
	cmd.AddCommand(a.listSchedulesCommand(), pause,
		a.schedulesCommand("resume", "End the pause of schedules",
			"Ends the pause of schedules. The ticks of the pause are not sent.", "resumed",
			new(string), func(ctx context.Context, s *chanqcron.Schedules, name string) error { return s.Resume(ctx, name) }),
		a.schedulesCommand("remove", "Delete schedules",
			`Deletes schedules. A program that ensures one stores it again when it starts.`, "removed",
			new(string), func(ctx context.Context, s *chanqcron.Schedules, name string) error { return s.Remove(ctx, name) }),
		a.runScheduleCommand(), a.migrateTablesCommand("schedule", "schedules", chanqcron.Migrate))
	return cmd
}

// withSchedules calls f with the schedules of the database, and with a function that makes a change of one of them, which the log of changes
// keeps for its queue.
func (a *app) withSchedules(ctx context.Context, f func(*chanqcron.Schedules, logged) error) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := chanqcron.Open(ctx, c.DB, a.queueConfig(c))
	if err != nil {
		return err
	}
	return f(s, func(what, name, reason string, do func() (int, error)) error {
		list, err := s.List(ctx)
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.Name == name {
				return chanqadmin.LogChange(ctx, c.DB, e.Queue, a.queueConfig(c), a.by(reason), what+" schedule", name, do)
			}
		}
		_, err = do() // it says that there is no such schedule
		return err
	})
}

// logged makes a change of a schedule.
type logged func(what, name, reason string, do func() (int, error)) error

// schedulesCommand is a command that does something to each of some schedules.
func (a *app) schedulesCommand(name, short, long, done string, reason *string, do func(context.Context, *chanqcron.Schedules, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     name + " NAME...",
		Short:   short,
		Long:    long,
		Example: "  chanq schedule " + name + " --db jobs.db nightly",
		Args:    atLeast(1, "one schedule or more"),
		RunE: func(cmd *cobra.Command, schedules []string) error {
			return a.withSchedules(cmd.Context(), func(s *chanqcron.Schedules, log logged) error {
				for _, schedule := range schedules {
					err := log(name, schedule, *reason, func() (int, error) { return 0, do(cmd.Context(), s, schedule) })
					if err == nil && a.output == "json" {
						err = a.json(map[string]any{"schedule": schedule, done: true})
					} else if err == nil {
						_, err = fmt.Fprintf(a.out, "schedule %s %s\n", brief(schedule, 100), done)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (a *app) runScheduleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME",
		Short: "Send the message of a schedule now",
		Long: `Sends the message of a schedule now, unless the previous one is in the queue and the
schedule must not overlap. Its next tick stays.`,
		Example: "  chanq schedule run --db jobs.db nightly",
		Args:    exactly(1, "one schedule"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.withSchedules(cmd.Context(), func(s *chanqcron.Schedules, log logged) error {
				var sent chanq.Receipt
				err := log("run", names[0], "", func() (n int, err error) {
					sent, err = s.Send(cmd.Context(), names[0])
					return 0, err
				})
				switch {
				case err != nil:
					return err
				case a.output == "json":
					return a.json(map[string]any{"id": sent.ID, "duplicate": sent.Duplicate})
				case sent.Duplicate:
					_, err = fmt.Fprintf(a.out, "%s is still in the queue: nothing is sent\n", sent.ID)
				default:
					_, err = fmt.Fprintln(a.out, sent.ID)
				}
				return err
			})
		},
	}
}

// scheduleLine is the JSON of a schedule.
type scheduleLine struct {
	Name        string     `json:"name"`
	Queue       string     `json:"queue"`
	Line        string     `json:"line"`
	Zone        string     `json:"zone"`
	CatchUp     string     `json:"catch_up"`
	Overlap     bool       `json:"overlap"`
	Type        string     `json:"type,omitempty"`
	Next        time.Time  `json:"next"`
	Last        *time.Time `json:"last,omitempty"`
	Ensured     time.Time  `json:"ensured"`
	Paused      *time.Time `json:"paused,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
}

func (a *app) listSchedulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the schedules",
		Long: `Lists the schedules of all queues: the next tick, the last one, and when a process last
ensured it. Remove those that no program ensures.`,
		Example: "  chanq schedule list --db jobs.db",
		Args:    exactly(0, "no argument: it lists all"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSchedules(cmd.Context(), func(s *chanqcron.Schedules, _ logged) error {
				list, err := s.List(cmd.Context())
				switch {
				case err != nil:
					return err
				case a.output != "json":
					return a.table(schedulesTable(list))
				}
				all := []scheduleLine{} // not null
				for _, e := range list {
					line := scheduleLine{e.Name, e.Queue, e.Line, e.Zone, e.CatchUp.String(), e.Overlap, e.Type, e.Next, nil, e.Ensured, nil, e.Pause.By, e.Pause.Reason}
					if !e.Last.IsZero() {
						line.Last = &e.Last
					}
					if !e.Pause.Since.IsZero() {
						line.Paused = &e.Pause.Since
					}
					all = append(all, line)
				}
				return a.json(all)
			})
		},
	}
}

func schedulesTable(list []chanqcron.Entry) [][]string {
	rows := [][]string{{"NAME", "QUEUE", "LINE", "ZONE", "NEXT", "LAST", "ENSURED"}}
	for _, e := range list {
		next := clock(e.Next)
		if !e.Pause.Since.IsZero() {
			next = "paused by " + brief(e.Pause.By, 40)
			if e.Pause.Reason != "" {
				next += ": " + brief(e.Pause.Reason, 60)
			}
		}
		rows = append(rows, []string{brief(e.Name, 100), e.Queue, brief(e.Line, 60), e.Zone, next, clock(e.Last), clock(e.Ensured)})
	}
	return rows
}
