package chanq

import (
	"context"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// TryLease claims up to n messages (at most 1000) for d (at least 100 ms) and
// starts nothing: for cron jobs and tools. One round trip; if it found something, one
// more may note this Queue among the Members, whose failure is no matter; and
// there is one more for messages that it sets aside, and for those that it gives back:
// of the messages whose process died again and again it returns one, since they may
// have died of another. No message is no error. If ctx ends during the claim, the
// messages may be leased to nobody until d is over.
//
// It looks from the beginning, as a Consumer does once a second. Where that took longer than
// 50 ms, since a snapshot somewhere keeps the database from cleaning up, say, calls within
// the next twenty times as long begin where the last one got to: they may miss what
// another process gave back meanwhile, what a transaction committed that was
// long under way, and leases that ran out.
//
// On an ordered queue it takes the slots that are free, up to its share among the consumers,
// and what it returns has one message of a key at most. Consumers make room for it once
// they have seen it, within two seconds or so: the first call may find nothing. The slots of which it
// returned messages are its own for a quarter longer than d, and their other keys wait.
// It costs three round trips, and up to two more.
//
// Of a queue with several shards it asks one after the other, beginning anywhere, until it has n. One that
// has not answered within a second does not keep it from asking the next, and once there is a message
// nobody is waited for longer than that; what comes too late is given back, if it can be. What some of
// them fail with it returns if no other had a message. Without one it waits for all to answer, or for
// ctx to end, so bound that where a place may be away.
//
// These leases are not extended unless Extend is called, so d must be enough for
// all n. Their contexts end at their deadlines. Each settle is a round trip of its
// own whose outcome it returns, for as long as 30 s if the database does not
// answer; AckAll, which a context bounds, and AckTx settle many in one. On SQLite a goroutine that holds a transaction
// must call neither: see Queue.
func (q *Queue[T]) TryLease(ctx context.Context, n int, d time.Duration) ([]*Lease[T], error) {
	if most := q.core.dialect.Traits().ClaimRows; n < 1 || n > most {
		return nil, fmt.Errorf("chanq: try lease %s: n is %d: must be from 1 to %d", q.core.name, n, most)
	}
	if d < minLease || d > sqlbatch.MaxDelay {
		return nil, fmt.Errorf("chanq: try lease %s: d is %v: must be from %v to %v", q.core.name, d, minLease, sqlbatch.MaxDelay)
	}
	config, err := ConsumerConfig{}.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(q.shards) == 1 {
		return tryLease[T](ctx, q.core, n, d, config)
	}
	return tryLeaseOfEach[T](ctx, q.shards, n, d, config)
}

// tryLease is TryLease on one shard.
func tryLease[T any](ctx context.Context, q *queue, n int, d time.Duration, config ConsumerConfig) ([]*Lease[T], error) {
	if q.ordered() {
		return tryLeaseOrdered[T](ctx, q, n, d, config)
	}
	start := monotonic()
	from, given := q.floor.ask(start)
	var rows claimedRows
	err := q.once(ctx, q.sql.Claim(sqlbatch.ClaimParams{Rows: n, Lease: d, Member: q.guest.id, Salt: newSalt(), Suspects: true, Floors: from}), rows.scan)
	if err != nil {
		return nil, q.fail("try lease", err)
	}
	q.floor.claimed(rows.rows, from, given, start, monotonic())
	if len(rows.rows) == 0 {
		return nil, nil
	}
	q.visit(ctx, config.Name, d)
	owner := &loneOwner{queue: q, timeout: config.StatementTimeout, values: context.WithoutCancel(ctx)}
	var leases []*Lease[T]
	var back []*lease
	suspect := false
	for _, l := range buildLeases[T](q, rows.rows, owner, deadlineAfter(start, d), start) {
		switch {
		case l.lease.state.Load() == leaseSettling:
			back = append(back, l.lease)
		case l.lease.suspect && suspect:
			l.lease.takeBack()
			back = append(back, l.lease)
		default:
			suspect = suspect || l.lease.suspect
			leases = append(leases, l)
		}
	}
	if len(back) > 0 {
		owner.giveBack(ctx, back) // if this fails, the next claim tries again
	}
	return leases, nil
}

// loneOwner owns leases that no consumer holds: every settle is a statement of
// its own.
type loneOwner struct {
	queue   *queue
	timeout time.Duration
	values  context.Context
}

func (o *loneOwner) home() *queue            { return o.queue }
func (o *loneOwner) parent() context.Context { return o.values }
func (o *loneOwner) hurry()                  {}
func (o *loneOwner) ended(*lease)            {}
func (o *loneOwner) moved(*lease)            {}
func (o *loneOwner) awaits(*lease) bool      { return false }
func (o *loneOwner) expire(l *lease)         { l.lose(leaseExpired) }
func (o *loneOwner) broken(error)            {} // the lease tells

func (o *loneOwner) settled(e SettledEvent) {
	if e.Nacked+e.Released > 0 {
		o.queue.ring(e.Nacked+e.Released, false)
	}
}

func (o *loneOwner) settle(l *lease) error {
	o.store(context.Background(), []*lease{l})
	return l.outcome()
}

// store stores settles with the settler's own care for unknown outcomes, for as long
// as one statement may take, or until ctx ends. What it sees of the database is told by one health of
// the queue: its next call may be what finds it back.
func (o *loneOwner) store(ctx context.Context, leases []*lease) {
	s := openOnce(o.queue.db, o.queue.dialect)
	defer s.close()
	defer o.queue.lone.changes.wait()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	st := newSettler(o, s, o.queue.lone, ctx, o.timeout, 0, 0, 0)
	st.addAll(leases...)
	st.writer.Close()
	st.run()
}

// giveBack stores releases. Where ctx ends meanwhile, as when other shards had enough, they have
// tryPatience more.
func (o *loneOwner) giveBack(ctx context.Context, leases []*lease) {
	longer, end := session.Outlasting(ctx, tryPatience)
	defer end()
	o.store(longer, leases)
}

func (o *loneOwner) extend(ctx context.Context, l *lease, d time.Duration) (bool, error) {
	s := openOnce(o.queue.db, o.queue.dialect)
	defer s.close()
	var bound func() time.Duration
	if o.queue.ordered() {
		config, err := ConsumerConfig{}.withDefaults()
		if err == nil { // the lease ends with the membership
			err = o.queue.visitNow(ctx, config.Name, d)
		}
		if err != nil {
			return false, o.queue.fail("extend", err)
		}
		bound = o.queue.guest.bound
	}
	return o.queue.extend(ctx, s, make(chan struct{}, 1), l, d, o.timeout, bound)
}
