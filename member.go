package chanq

import (
	"context"
	"database/sql"
	"math"
	"os"
	"strings"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
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

// leaveTimeout is for how long a consumer that ends tries to say so.
const leaveTimeout = 5 * time.Second

// attend notes the consumer among the members until ctx ends, and then that it left,
// unless Shutdown has given up: it may hold messages still. Nothing waits for it,
// but the end of the consumer for that last statement. It has sessions of
// its own kind, so that no claim waits for one.
func (c *consumer) attend(ctx context.Context) {
	chore := c.queue.task("members", "join")
	defer chore.End()
	for ctx.Err() == nil {
		timeout, pause := c.cfg.StatementTimeout, c.cfg.LeaseFor/3
		if c.queue.ordered() { // all slots are lost with the membership: there is time for several tries
			timeout = min(timeout, c.cfg.LeaseFor/6)
		}
		began := base.Now()
		as := c.member
		if c.here != nil { // what a lost membership left behind is another's
			as.ID = c.here.Next(func() [16]byte { return NewID() })
		}
		err := c.asMember(ctx, timeout, c.queue.sql.Join(as))
		c.report(chore, "join", err)
		if err != nil && c.queue.ordered() {
			pause /= 4
		}
		if err == nil && c.order != nil {
			if c.here.Joined(lease.After(began, c.cfg.LeaseFor)) {
				c.order.Hurry() // slots may be taken
				if c.queue.debouncer.Notifier != nil {
					c.queue.wake() // the shares of others are smaller
				}
			}
			c.extender.Wake() // leases may last longer now
		}
		batch.Sleep(ctx, pause)
	}
	if c.abandoned.Err() == nil {
		// What fails is of no matter: it counts as gone before long.
		id, _ := c.memberUntil()
		err := c.asMember(c.abandoned, min(c.cfg.StatementTimeout, leaveTimeout), c.queue.sql.Leave(id))
		if err == nil && c.queue.ordered() {
			c.queue.wake() // its slots are free, and the shares of others are greater
		}
	}
}

// memberUntil is as whom the database knows the consumer now, and when its leases end at the latest.
func (c *consumer) memberUntil() (id [16]byte, ends time.Duration) {
	if c.here == nil {
		return c.member.ID, math.MaxInt64
	}
	term, ends, _ := c.here.Current()
	return term.ID, ends
}

func (c *consumer) asMember(ctx context.Context, timeout time.Duration, st sqlbatch.Statement) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.notes.RunPatient(ctx, st, nil)
}
