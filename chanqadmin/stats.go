package chanqadmin

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/table"
)

// Stats has the counts of a queue.
type Stats struct {
	// Counts of messages by state. Each is exact below Limit, and Limit itself means that many or more, so that looking at a deep
	// queue costs no more than looking at a short one. Which of the due messages are ready and which are leased is looked up for the
	// first of each priority, at least twice Limit of them: where more are leased, what is ready behind them may not be counted, and the other way
	// round. Of an ordered queue scheduled and leased ones, and the oldest, are looked for among the first Limit/Spec.Slots of
	// each slot (SQLite: the first 2*Limit in the order of their sends): there may be more behind them.
	Ready     int `json:"ready"`
	Scheduled int `json:"scheduled"`
	Leased    int `json:"leased"`
	Dead      int `json:"dead"`
	Done      int `json:"done"`
	Limit     int `json:"limit"`
	// OldestReady is for how long the oldest ready message has been due.
	OldestReady time.Duration `json:"oldest_ready_ns"`
	Paused      bool          `json:"paused"`
}

// StatsLimit bounds the counts of Stats.
const StatsLimit = table.CountLimit

// Stats counts the messages of the queue, up to 10,000 of each state, in one round trip that reads no more than a few times as
// many entries. It takes no locks that others wait for. To decide whether the queue is drained, call Empty.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	var c table.Counts
	err := q.once(ctx, q.sql.Stats(StatsLimit), c.Scan)
	return Stats{c.Ready, c.Scheduled, c.Leased, c.Dead, c.Done, StatsLimit, c.OldestReady, c.Paused}, q.fail("stats", err)
}
