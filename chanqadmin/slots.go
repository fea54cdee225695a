package chanqadmin

import (
	"context"
	"database/sql"
	"time"
)

// SlotStats has the counts of one slot of an ordered queue. They identify a slot with a backlog, and the key that causes it.
type SlotStats struct {
	Slot int `json:"slot"`
	// Owner is the name of the consumer that owns the slot, as in Queue.Consumers; "" if none does.
	Owner string `json:"owner,omitempty"`
	// Messages counts the ready, scheduled and leased messages. SlotStatsLimit means that many or more. The fields below describe the
	// counted messages, which are the first in the order of their sends.
	Messages int `json:"messages"`
	// Waiting counts the messages that cannot be delivered now: leased messages, and messages that wait for their next attempt.
	Waiting int `json:"waiting"`
	// Oldest is the age of the oldest of them.
	Oldest time.Duration `json:"oldest_ns"`
	// TopKey is the most frequent key among them, and TopKeyMessages its count; "" and 0 if none has a key.
	TopKey         string `json:"top_key,omitempty"`
	TopKeyMessages int    `json:"top_key_messages"`
}

// SlotStatsLimit is the upper bound of the counts of SlotStats.
const SlotStatsLimit = 100

// Slots returns the counts of each slot of an ordered queue, in one round trip that reads up to 100 messages of each slot, several
// times. It takes no locks that block other statements. For a plain queue it returns an error.
func (q *Queue) Slots(ctx context.Context) ([]SlotStats, error) {
	if !q.ordered() {
		return nil, q.refuse("slots", "the queue is plain, and only an ordered queue has slots (Spec.Kind)")
	}
	return collect(ctx, q, "slots", q.sql.SlotStats(SlotStatsLimit*q.cfg.Slots), func(rows *sql.Rows) (s SlotStats, err error) {
		var owner sql.NullString
		var oldest sql.NullInt64
		var key []byte
		err = rows.Scan(&s.Slot, &owner, &s.Messages, &s.Waiting, &oldest, &key, &s.TopKeyMessages)
		s.Owner, s.Oldest, s.TopKey = owner.String, time.Duration(oldest.Int64)*time.Millisecond, string(key)
		return s, err
	})
}
