package chanqadmin

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq"
)

// ConsumerInfo is a consumer of a queue, of any process, as the database knows it.
type ConsumerInfo struct {
	ID   chanq.ID // as in Entry.Consumer
	Name string   // ConsumerConfig.Name
	// Host and Process are where it runs.
	Host    string
	Process int
	// Since is when it came, and Until when it counts as gone unless it reports before that it is still there, both by the
	// database's clock.
	Since, Until time.Time
}

// Consumers returns the consumers of this queue, first come first, in one round trip. A consumer is listed from its start, or a moment
// later, until it has ended; one whose process died for ConsumerConfig.LeaseFor longer at most.
func (q *Queue) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	return collect(ctx, q, "consumers", q.sql.Members(), func(rows *sql.Rows) (c ConsumerInfo, err error) {
		var id []byte
		var since, until int64
		err = rows.Scan(&id, &c.Name, &c.Host, &c.Process, &since, &until)
		copy(c.ID[:], id)
		c.Since, c.Until = time.UnixMilli(since), time.UnixMilli(until)
		return c, err
	})
}
