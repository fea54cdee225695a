package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) pauseCommand() *cobra.Command {
	reason := ""
	cmd := a.switchCommand("pause", "Stop all claims of queues, in every process",
		`Stops all claims of the queues, in every process, when the consumers poll next. You
can send messages, and settle leased ones, during a pause.`,
		"paused", func(q *chanqadmin.Queue, ctx context.Context) error {
			return q.Pause(ctx, a.by(reason))
		})
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for other operators, which chanq doctor shows")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return a.switchCommand("resume", "End the pause of queues", "Ends the pause of the queues.",
		"resumed", func(q *chanqadmin.Queue, ctx context.Context) error { return q.Resume(ctx, a.by("")) })
}

func (a *app) switchCommand(name, short, long, done string, do func(*chanqadmin.Queue, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use:     name + " QUEUE...",
		Short:   short,
		Long:    long,
		Example: "  chanq " + name + " --db jobs.db mail",
		Args:    atLeast(1, "one queue or more"),
		RunE: func(cmd *cobra.Command, queues []string) error {
			for _, queue := range queues {
				err := a.withQueue(cmd.Context(), queue, func(q *chanqadmin.Queue) error { return do(q, cmd.Context()) })
				if err != nil {
					return err
				}
				if a.output == "json" {
					err = a.json(map[string]any{"queue": queue, "paused": name == "pause"})
				} else {
					_, err = fmt.Fprintf(a.out, "queue %s %s\n", queue, done)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
