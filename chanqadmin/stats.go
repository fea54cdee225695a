package chanqadmin

import (
	"context"
	"time"

	"github.com/chanq/chanq/internal/table"
)

// Stats has the counts of a queue.
type Stats struct {
	// Counts of messages by state. Each is exact below Limit. Limit means that many or more, so that a deep queue costs no more than
	// a short one. To separate ready from leased messages, Stats reads the first due messages of each priority, at least twice Limit.
	// If more than these are leased, ready messages behind them might not be counted, and vice versa. On an ordered queue it searches
	// for scheduled messages, leased messages and the oldest among the first Limit/Spec.Slots of each slot (SQLite: the first 2*Limit
	// in the order of their sends): there might be more behind them.
	Ready     int `json:"ready"`
	Scheduled int `json:"scheduled"`
	Leased    int `json:"leased"`
	Dead      int `json:"dead"`
	Done      int `json:"done"`
	Limit     int `json:"limit"`
	// OldestReady is how long the oldest ready message has been due.
	OldestReady time.Duration `json:"oldest_ready_ns"`
	Paused      bool          `json:"paused"`
	// About is read if a count reached Limit: see Estimate. On SQLite it is zero.
	About Estimates `json:"about,omitzero"`
}

// StatsLimit is the upper bound of the counts of Stats.
const StatsLimit = 10_000

// Stats counts the messages of the queue, up to 10,000 of each state, in one round trip that reads at most a small multiple of these
// entries. If a count reached that, it costs another one, which reads the catalog of the database. It takes no locks that block other
// statements. To decide whether the queue is drained, call Empty.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	var c table.Counts
	err = q.once(ctx, q.sql.Stats(StatsLimit), c.Scan)
	s = Stats{c.Ready, c.Scheduled, c.Leased, c.Dead, c.Done, StatsLimit, c.OldestReady, c.Paused, Estimates{}}
	if err == nil && max(c.Ready, c.Scheduled, c.Leased, c.Dead, c.Done) >= StatsLimit {
		s.About, _ = q.estimates(ctx) // without it the counts are still right
	}
	return s, q.fail("stats", err)
}
