package chanqadmin

import (
	"context"
	"database/sql"
	"time"

	"github.com/chanq/chanq"
)

// ConsumerInfo is a consumer of a queue, of any process, as the database stores it.
type ConsumerInfo struct {
	ID   chanq.ID // as in Entry.Consumer
	Name string   // ConsumerConfig.Name
	// Host and Process are where it runs.
	Host    string
	Process int
	// Since is when it started, and Until is when it counts as gone unless it sends another heartbeat, both by the database's
	// clock.
	Since, Until time.Time
}

// Consumers returns the consumers of this queue, earliest start first, in one round trip. A consumer is listed from shortly after
// its start until its end. If its process died, it is listed for at most 25 s longer, on an ordered queue for ConsumerConfig.LeaseFor.
func (q *Queue) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	return collect(ctx, q, "consumers", q.sql.Consumers(), func(rows *sql.Rows) (c ConsumerInfo, err error) {
		var id []byte
		var since, until int64
		err = rows.Scan(&id, &c.Name, &c.Host, &c.Process, &since, &until)
		copy(c.ID[:], id)
		c.Since, c.Until = time.UnixMilli(since), time.UnixMilli(until)
		return c, err
	})
}
