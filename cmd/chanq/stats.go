package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
)

func (a *app) statsCommand() *cobra.Command {
	var slots bool
	cmd := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Count the messages of queues by state",
		Long: `Counts the messages of the named queues, or of all, by state. Counts stop at 10,000:
above, it shows what the database estimates, or 10000+. OLDEST is for how long the oldest ready message has been due.

--slots shows each slot of ordered queues: its consumer, how many messages are in it
and cannot be claimed now (being processed, or waiting for a retry), for how long
the oldest has been in the queue, and the key that most have. These counts stop at ` + strconv.Itoa(chanqadmin.SlotStatsLimit) + `.
Other queues are left out.

A queue over several databases has a line per shard, for example 0/3; --shard-db adds databases.`,
		Example: `  chanq stats --db jobs.db
  chanq stats --db jobs.db -o json mail
  chanq stats --db jobs.db --slots payments
  chanq stats --db east.db --shard-db west.db --shard-db north.db orders`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			c, err := a.connectAll(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if slots {
				return a.slotStats(cmd.Context(), c, queues)
			}
			list, err := a.allStats(cmd.Context(), c, queues)
			switch {
			case !c.partly(len(list), err):
				return err
			case a.output == "json":
				return errors.Join(a.json(statsJSON(list)), err)
			}
			return errors.Join(a.table(statsTable(list)), err)
		},
	}
	cmd.Flags().BoolVar(&slots, "slots", false, "show the slots of ordered queues")
	return a.shardsFlag(cmd)
}

func statsTable(list []queueStats) [][]string {
	rows := [][]string{{"QUEUE", "READY", "SCHEDULED", "LEASED", "DEAD", "DONE", "OLDEST", ""}}
	for _, q := range list {
		rows = append(rows, statsRow(q))
	}
	return rows
}

func statsRow(q queueStats) []string {
	limited := func(n int, state chanqadmin.State) string {
		switch about := q.Estimate(state); {
		case n < q.Limit:
			return strconv.Itoa(n)
		case about == 0:
			return strconv.Itoa(q.Limit) + "+"
		default:
			return chanqadmin.About(about)
		}
	}
	oldest, paused := "-", ""
	if q.Ready > 0 {
		oldest = q.OldestReady.Round(100 * time.Millisecond).String()
	}
	if q.Paused {
		paused = "paused"
	}
	return []string{label(q.name, q.shard), limited(q.Ready, chanqadmin.StateReady), limited(q.Scheduled, chanqadmin.StateScheduled), limited(q.Leased, chanqadmin.StateLeased), limited(q.Dead, chanqadmin.StateDead), limited(q.Done, chanqadmin.StateDone), oldest, paused}
}

type statsLine struct {
	Queue     string                   `json:"queue"`
	Shard     string                   `json:"shard,omitempty"` // as 0/3
	Ready     int                      `json:"ready"`
	Scheduled int                      `json:"scheduled"`
	Leased    int                      `json:"leased"`
	Dead      int                      `json:"dead"`
	Done      int                      `json:"done"`
	Limit     int                      `json:"limit"`
	Estimates map[chanqadmin.State]int `json:"estimates,omitempty"` // of states with that many messages or more
	Oldest    float64                  `json:"oldest_ready_seconds"`
	Paused    bool                     `json:"paused"`
	Wait      *quantiles               `json:"wait_seconds"` // null: none in the last minute
	Handler   *quantiles               `json:"handler_seconds"`
}

// quantiles are the times, in seconds, that half of the messages, and 95 of 100, did not exceed.
type quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
}

// quantilesOf returns nil if there were none.
func quantilesOf(t chanqadmin.Times) *quantiles {
	if t == (chanqadmin.Times{}) {
		return nil
	}
	return &quantiles{t.Quantile(0.5).Seconds(), t.Quantile(0.95).Seconds()}
}

func (q *quantiles) String() string {
	if q == nil {
		return "-"
	}
	short := func(s float64) string {
		unit := time.Millisecond
		switch {
		case s >= 60:
			unit = time.Minute
		case s >= 1:
			unit = 100 * time.Millisecond
		}
		return time.Duration(s * float64(time.Second)).Round(unit).String()
	}
	return short(q.P50) + "/" + short(q.P95)
}

func statsJSON(list []queueStats) []statsLine {
	lines := []statsLine{} // not null
	for _, q := range list {
		estimates := map[chanqadmin.State]int{}
		for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone} {
			if about := q.Estimate(state); about >= q.Limit {
				estimates[state] = about
			}
		}
		lines = append(lines, statsLine{q.name, q.shard, q.Ready, q.Scheduled, q.Leased, q.Dead, q.Done, q.Limit, estimates, q.OldestReady.Seconds(), q.Paused, quantilesOf(q.waits), quantilesOf(q.calls)})
	}
	return lines
}
