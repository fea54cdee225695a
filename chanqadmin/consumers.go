package chanqadmin

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// ConsumerInfo is a consumer of a queue, of any process, as the database stores it.
type ConsumerInfo struct {
	ID   chanq.ID // as in Entry.Consumer
	Name string   // ConsumerConfig.Name
	// Host and Process are where it runs.
	Host    string
	Process int
	// Since is when it started, Heard is when it sent its last heartbeat, and Until is when it is no longer listed unless it sends
	// another, all by the database's clock. A consumer sends one every 10 s or more often.
	Since, Heard, Until time.Time
}

// HeardFor is the age of the last heartbeat up to which a consumer is heard.
const HeardFor = sqlbatch.HeardFor

// Consumers returns the consumers of this queue, earliest start first, in one round trip. A consumer is listed from shortly after
// its start until its end. If its process died, it is listed for at most 25 s longer, on an ordered queue for ConsumerConfig.LeaseFor.
func (q *Queue) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	return collect(ctx, q, "consumers", q.sql.Consumers(), func(rows *sql.Rows) (c ConsumerInfo, err error) {
		var id []byte
		var since, until, heard int64
		err = rows.Scan(&id, &c.Name, &c.Host, &c.Process, &since, &until, &heard)
		copy(c.ID[:], id)
		c.Since, c.Until, c.Heard = time.UnixMilli(since), time.UnixMilli(until), time.UnixMilli(heard)
		return c, err
	})
}

// ErrHeard is returned by Release for a consumer that is heard.
var ErrHeard = errors.New("the consumer is running: stop its process first, and release its leases when it has not been heard for 25 s")

// Release ends the leases of a consumer that has not been heard for HeardFor, and returns how many. Its messages are delivered again now,
// and what it settles later is refused with ErrLeaseLost. Each lease counts as expired. On an ordered queue another consumer takes its
// slots. A handler of it might still run: end its process first.
//
// If the consumer is heard, it changes nothing and returns ErrHeard. It reads about 10,000 messages, and goes on while it finds leased
// ones: with Changed.More there may be others. It costs two round trips, and one per 1,000 messages that it reads and changes (SQL Server:
// 400). A DryRun changes nothing.
func (q *Queue) Release(ctx context.Context, consumer chanq.ID, c Change) (Changed, error) {
	s := Select{State: StateLeased, IDs: []chanq.ID{}}
	now, err := q.Now(ctx)
	if err != nil {
		return Changed{}, err
	}
	listed, err := q.Consumers(ctx)
	if err != nil {
		return Changed{}, err
	}
	known := false
	for _, one := range listed {
		if known = known || one.ID == consumer; one.ID == consumer && now.Sub(one.Heard) < HeardFor {
			return Changed{}, q.refuse("release", "consumer %s, heard %s ago: %w", one.Name, now.Sub(one.Heard).Round(time.Second), ErrHeard)
		}
	}
	more := false
	for l := (List{Limit: MostListed}); ; {
		page, err := q.List(ctx, Select{State: StateLeased}, l)
		if err != nil {
			return Changed{}, err
		}
		for _, e := range page.Entries {
			if e.Consumer == consumer && (known || now.Sub(e.HeldSince) >= HeardFor) { // otherwise its claim was heard
				s.IDs = append(s.IDs, e.ID)
			}
		}
		if l.After, more = page.Next, page.Next != ""; !more || len(page.Entries) == 0 {
			break
		}
	}
	if c.DryRun {
		return Changed{Messages: len(s.IDs), More: more}, nil
	}
	if q.ordered() {
		if err := q.once(ctx, q.sql.Leave(consumer), nil); err != nil {
			return Changed{}, q.fail("release", err)
		}
	}
	by := func(ids [][16]byte) sqlbatch.Statement { return q.sql.Surrender(consumer, ids) }
	changed, err := q.change(ctx, &change{op: "release", Select: s, Change: c, byID: by, which: "consumer=" + consumer.String()})
	q.queue.Wake() // slots may be free even if it had no message
	changed.More = more
	return changed, err
}
