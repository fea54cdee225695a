package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	var n int
	cmd := &cobra.Command{
		Use:   "top [QUEUE...]",
		Short: "Show the stats of queues again and again",
		Long: `Shows what chanq stats shows, for the named queues or for all, every second until
interrupted: in place on a terminal, one table after the other elsewhere; with
-o json one array on a line each time.`,
		Example: `  chanq top --db jobs.db
  chanq top --db jobs.db --every 10s mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			if every < 10*time.Millisecond {
				return usage("--every is %v: must be 10ms or more", every)
			}
			if n < 0 {
				return usage("-n is %d: must be 0 (until interrupted) or more", n)
			}
			return a.top(cmd.Context(), queues, every, n)
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two looks")
	cmd.Flags().IntVarP(&n, "number", "n", 0, "how many looks (default until interrupted)")
	return cmd
}

// top goes on while the database is away: that is when it is watched.
func (a *app) top(ctx context.Context, queues []string, every time.Duration, n int) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 1; ; i++ {
		list, err := a.allStats(ctx, c, queues)
		if err != nil && i == 1 {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := a.showTop(c, list, err); err != nil {
			return err
		}
		if i == n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *app) showTop(c *connection, list []queueStats, failure error) error {
	switch {
	case a.output == "json" && failure == nil:
		return a.json(statsJSON(list))
	case a.output == "json":
		fmt.Fprintf(a.err, "chanq: %s\n", a.clean(failure))
		return nil
	}
	if a.terminal != nil {
		fmt.Fprint(a.terminal, "\x1b[H\x1b[2J") // to the corner, and clear
	}
	fmt.Fprintf(a.out, "%s  %s\n", time.Now().Format(time.TimeOnly), visible(c.name))
	if failure != nil {
		_, err := fmt.Fprintf(a.out, "%s\n", a.clean(failure))
		return err
	}
	return a.table(statsTable(list))
}
