package chanq

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Member is a consumer of a queue, of any process, as the database knows it.
type Member struct {
	ID   ID     // as in Entry.Member
	Name string // ConsumerConfig.Name
	// Host and Process are where it runs.
	Host    string
	Process int
	// Since is when it came, and Until when it counts as gone unless it says before
	// that it is still there, both by the database's clock.
	Since, Until time.Time
}

// Members returns who consumes this queue now, first come first, in one round trip:
// for operators. A consumer is a member from its start, or a moment later, until it
// has ended; one whose process died for ConsumerConfig.LeaseFor more at most.
func (q *Queue[T]) Members(ctx context.Context) ([]Member, error) {
	var list []Member
	err := q.core.once(ctx, q.core.sql.Members(), func(rows *sql.Rows) error {
		var m Member
		var id []byte
		var since, until int64
		if err := rows.Scan(&id, &m.Name, &m.Host, &m.Process, &since, &until); err != nil {
			return err
		}
		copy(m.ID[:], id)
		m.Since, m.Until = time.UnixMilli(since), time.UnixMilli(until)
		list = append(list, m)
		return nil
	})
	return list, q.core.fail("members", err)
}

// newMember is this process as a member, for a time.
func newMember(name string, d time.Duration) sqlbatch.Member {
	return sqlbatch.Member{ID: NewID(), Name: name, Host: hostName(), Process: os.Getpid(), For: d}
}

// hostName is "" where the system does not tell.
func hostName() string {
	host, _ := os.Hostname()
	host = strings.ToValidUTF8(strings.ReplaceAll(host, "\x00", ""), "")
	for len(host) > maxHost {
		host = strings.ToValidUTF8(host[:maxHost], "")
	}
	return host
}

// maxHost leaves room for a slash and the process in a name.
const maxHost = sqlbatch.MaxMemberText - 21
