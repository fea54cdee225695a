package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) statsCommand() *cobra.Command {
	var slots bool
	cmd := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Count the messages of queues by state",
		Long: `Counts the messages of the named queues, or of all, by state. A count stops at
10,000, shown as 10000+, so that looking at a deep queue costs little. OLDEST is
for how long the oldest ready message has been due.

--slots shows, for ordered queues, each slot: who has it, how many messages are in it
and cannot be claimed just now (at work, or waiting to be tried again), for how long
the oldest is in the queue, and the key that most have. These counts stop at 1000.
Other queues are left out.`,
		Example: `  chanq stats --db jobs.db
  chanq stats --db jobs.db -o json mail
  chanq stats --db jobs.db --slots payments`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			c, err := a.connect(cmd.Context(), mustExist)
			if err != nil {
				return err
			}
			defer c.Close()
			if slots {
				return a.slotStats(cmd.Context(), c, queues)
			}
			list, err := a.allStats(cmd.Context(), c, queues)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.json(statsJSON(list))
			}
			return a.table(statsTable(list))
		},
	}
	cmd.Flags().BoolVar(&slots, "slots", false, "show the slots of ordered queues")
	return cmd
}

func statsTable(list []queueStats) [][]string {
	rows := [][]string{{"QUEUE", "READY", "SCHEDULED", "LEASED", "DEAD", "DONE", "OLDEST", ""}}
	for _, q := range list {
		limited := func(n int) string {
			if n >= q.Limit {
				return strconv.Itoa(q.Limit) + "+"
			}
			return strconv.Itoa(n)
		}
		oldest, paused := "-", ""
		if q.Ready > 0 {
			oldest = q.OldestReady.Round(100 * time.Millisecond).String()
		}
		if q.Paused {
			paused = "paused"
		}
		rows = append(rows, []string{q.name, limited(q.Ready), limited(q.Scheduled), limited(q.Leased), limited(q.Dead), limited(q.Done), oldest, paused})
	}
	return rows
}

type statsLine struct {
	Queue     string  `json:"queue"`
	Ready     int     `json:"ready"`
	Scheduled int     `json:"scheduled"`
	Leased    int     `json:"leased"`
	Dead      int     `json:"dead"`
	Done      int     `json:"done"`
	Limit     int     `json:"limit"`
	Oldest    float64 `json:"oldest_ready_seconds"`
	Paused    bool    `json:"paused"`
}

func statsJSON(list []queueStats) []statsLine {
	lines := []statsLine{} // not null
	for _, q := range list {
		lines = append(lines, statsLine{q.name, q.Ready, q.Scheduled, q.Leased, q.Dead, q.Done, q.Limit, q.OldestReady.Seconds(), q.Paused})
	}
	return lines
}
