package chanq

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The public consumer, and below it what connects it to its engine, package internal/consume.

// Consumer claims messages ahead of its readers and delivers them on a channel. Any number of goroutines can read it,
// in different ways, and each lease goes to one of them. To stop it, call Stop or cancel Consume's context, and then
// call Shutdown. It is safe for concurrent use. While busy it uses three to five connections, while idle none: see
// docs/operate/connections.md.
type Consumer[T any] struct {
	core *consumer
	feed *consume.Feed[*Lease[T]]
}

// ConsumerStats has counts since Consume, and the current state, of this consumer. For the queue see
// chanqadmin.Queue.Stats.
type ConsumerStats struct {
	// Claims.
	Claimed     int64 // messages
	Claims      int64 // statements that found messages
	EmptyClaims int64 // statements that found none
	Looks       int64 // reads by which an idle consumer learns when a claim might find messages

	// Settles in the database. AckTx counts after InTx, otherwise never.
	Acked, Nacked, Released, Dead int64
	Lost                          int64 // settles of lost leases

	// Now.
	Buffered int // leases that wait for a reader
	// For an ordered queue: messages in memory that wait, slots that the consumer owns, keys that are blocked by their
	// first message (at most 10,000).
	Waiting, Slots, BlockedKeys int
	Held                        int // leases buffered or delivered, and neither settled nor lost
	Settling                    int // settles that wait for their statement
	// Isolated settles, which Settling includes: see IsolatedEvent.
	Isolated int
}

// Consume starts a consumer. A cancelled ctx does what Stop does; call Shutdown to wait for the last settles. The
// contexts of the leases have the values of ctx. Consume makes no database call: Hooks.Availability reports outages.
//
// With SetMaxOpenConns, a consumer reserves five connections, all consumers on the *sql.DB six (SQLite: one). If the
// limit is too low, the error names a sufficient one.
func (q *Queue[T]) Consume(ctx context.Context, cfg ConsumerConfig) (*Consumer[T], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, q.core.failed("consume", err)
	}
	c, err := newConsumer(q.core, cfg, context.WithoutCancel(ctx))
	if err != nil {
		return nil, q.core.failed("consume", err)
	}
	f := newFeed[T](c)
	unrecord, forget := q.core.recorder.Join(), context.AfterFunc(ctx, c.engine.Stop)
	c.engine.Start(f, func() { forget() }, unrecord)
	return &Consumer[T]{c, f}, nil
}

// C is the channel of leases. The consumer closes it when it stops: after Stop, a cancelled context, a permanent error
// (see Err) or ConsumerConfig.StopWhenIdle. It releases the leases that are left in it.
func (c *Consumer[T]) C() <-chan *Lease[T] { return c.feed.C() }

// All yields leases until the channel is closed (see Err). It skips leases that expired in the buffer. If you leave the
// loop, even by a panic, the consumer stops; settle the current lease yourself.
func (c *Consumer[T]) All() iter.Seq[*Lease[T]] {
	return func(yield func(*Lease[T]) bool) {
		defer c.Stop() // also after a break or a panic
		for l := range c.feed.C() {
			if !skip(l) && !yield(l) {
				return
			}
		}
	}
}

// Receive waits for a lease, and then at most wait for more, up to maxBatch leases in all. With a wait of 0 it takes
// what is buffered. It costs no round trip, and skips leases that expired in the buffer. Settle the leases one by one,
// or together by Ack or AckTx.
//
// You get at least one lease or an error: the cause of ctx, Err after the consumer has stopped, or ErrClosed if Err is
// nil. You can call Receive again after its ctx was cancelled.
func (c *Consumer[T]) Receive(ctx context.Context, maxBatch int, wait time.Duration) ([]*Lease[T], error) {
	if err := checkBatch(maxBatch, wait); err != nil {
		return nil, c.core.queue.failed("receive", err)
	}
	var batch []*Lease[T]
	for len(batch) == 0 {
		if ctx.Err() != nil { // also if a lease is buffered
			return nil, c.core.queue.failed("receive", context.Cause(ctx))
		}
		select {
		case l, open := <-c.feed.C():
			if !open {
				return nil, cmp.Or(c.Err(), c.core.queue.failed("receive", ErrClosed))
			}
			if !skip(l) {
				batch = append(make([]*Lease[T], 0, min(maxBatch, c.feed.Buffered()+1)), l)
			}
		case <-ctx.Done():
		}
	}
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	for len(batch) < maxBatch {
		l := c.next(ctx, over)
		if l == nil {
			break
		}
		if !skip(l) {
			batch = append(batch, l)
		}
	}
	return batch, nil
}

// next returns a buffered lease, or the first that arrives before the end of ctx and over, or nil. If over is nil, it
// does not wait.
func (c *Consumer[T]) next(ctx context.Context, over <-chan time.Time) *Lease[T] {
	select {
	case l := <-c.feed.C(): // nil if the channel is closed
		return l
	default:
	}
	if over == nil {
		return nil
	}
	select {
	case l := <-c.feed.C():
		return l
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// Stop stops claiming and releases all leases in the buffer. It returns immediately, and you can call it repeatedly.
// Delivered leases can be settled afterwards.
func (c *Consumer[T]) Stop() { c.core.engine.Stop() }

// Shutdown stops the consumer, and waits until every delivered lease is settled or lost, every handler has returned and
// every settle is stored. Call it while your loops run, for example after Done, and then wait for them. No deadline
// applies before. After Handle, HandleBatches or Pipe has returned, you need not call it.
//
// If ctx is cancelled first, so are the leases' contexts, and Shutdown returns within 6 s. The error is Err
// after a permanent error. Otherwise it wraps the cause of ctx and counts what is left. You can call it again to wait
// for the last handlers; close the *sql.DB after them.
func (c *Consumer[T]) Shutdown(ctx context.Context) error {
	_, err := c.core.end(ctx, "shutdown")
	return cmp.Or(c.Err(), err)
}

// Done is closed when the consumer starts to stop, for any reason. By then Err returns its permanent error, if there is
// one. Delivered leases can be settled afterwards.
func (c *Consumer[T]) Done() <-chan struct{} { return c.core.engine.Stopped() }

// Err returns the permanent error, such as a missing table or permission, by which the consumer stopped, or nil.
// Outages do not stop a consumer.
func (c *Consumer[T]) Err() error { return c.core.engine.Failure() }

// Flush waits until every settle that was handed over before is in the database or refused, or ctx is cancelled, and
// then returns its error. It also waits for settles whose rows another session has locked.
func (c *Consumer[T]) Flush(ctx context.Context) error {
	q := c.core.queue
	if err := q.outsideTx(ctx, afterCommit); err != nil {
		return q.failed("flush", err)
	}
	return q.failed("flush", c.core.engine.Flush(ctx))
}

// Stats returns counts. It makes no database call.
func (c *Consumer[T]) Stats() ConsumerStats {
	s := c.core.engine.Stats()
	return ConsumerStats{
		Looks: s.Looks, Claims: s.Claims, Claimed: s.Claimed, EmptyClaims: s.Empty,
		Acked: int64(s.Acked), Nacked: int64(s.Nacked), Released: int64(s.Released), Dead: int64(s.Dead),
		Lost:     int64(s.Lost),
		Buffered: s.Buffered, Waiting: s.Waiting, Slots: s.Slots, BlockedKeys: s.BlockedKeys,
		Held: s.Held, Settling: s.Settling, Isolated: s.Isolated,
	}
}

// consumer is the part of a Consumer without a type parameter: its engine (package consume), its hooks and its errors.
type consumer struct {
	queue  *queue
	cfg    ConsumerConfig
	health *base.Availability
	engine *consume.Consumer
}

// newConsumer makes a consumer, and starts nothing. The leases' contexts have the values of values.
func newConsumer(q *queue, cfg ConsumerConfig, values context.Context) (*consumer, error) {
	c := &consumer{queue: q, cfg: cfg, health: q.availability("consumer")}
	engine, err := consume.New(consume.Config{
		Limits: claim.Limits{
			Times: lease.Times{LeaseFor: cfg.LeaseFor, MaxExtend: cfg.MaxExtend,
				StatementTimeout: q.cfg.StatementTimeout, OneWriter: q.table.Dialect.Traits().OneWriter},
			Prefetch: cfg.Prefetch, PrefetchBytes: cfg.PrefetchBytes, PollEvery: cfg.PollEvery,
			MaxCrashes: q.cfg.MaxCrashes, Slots: q.names.Slots,
		},
		DB: q.db, Table: q.table, Signals: &q.signals,
		VacuumEvery: q.cfg.VacuumEvery, SessionMaxAge: q.cfg.SessionMaxAge,
		Row: consume.Identity(NewID(), cfg.Name, cfg.LeaseFor), NewID: func() [16]byte { return NewID() },
		StopWhenIdle: cfg.StopWhenIdle, Values: values, Health: c.health, Isolated: q.isolated("consumer"),
		Task: q.task, Observer: c,
	})
	c.engine = engine
	return c, err
}

// newFeed makes the feed of a consumer, whose leases have bodies of type T.
func newFeed[T any](c *consumer) *consume.Feed[*Lease[T]] {
	return consume.NewFeed(consume.FeedConfig[*Lease[T]]{
		Source:  c.engine.Source(),
		Build:   func(b claim.Batch, into []*Lease[T]) []*Lease[T] { return build(c, b, into) },
		LeaseOf: func(l *Lease[T]) *lease.Lease { return l.lease },
		Release: func(back []*lease.Lease) { c.engine.SettleAll(back...) },
	}, c.cfg.Prefetch)
}

// Claimed and what follows are the methods of consume.Observer.
func (c *consumer) Claimed(rows []table.Claimed) { c.queue.recorder.Claimed(rows) }

func (c *consumer) Delivered(messages, bytes int, took time.Duration) {
	call(c.queue.cfg.Hooks.Claimed, ClaimedEvent{Queue: c.queue.cfg.Label, Messages: messages, Bytes: bytes,
		Took: took})
}

func (c *consumer) Delay(l *lease.Lease, row *table.Claimed, err error) time.Duration {
	c.Describe(l, row)
	return c.backoff(l.Rare.Read().About.Load().(*Delivery), c.queue.failed("read", err))
}

func (c *consumer) Failed(op string, err error) error { return c.queue.fail(op, err) }

// Known records the outcome of a settle before the lease reports it.
func (c *consumer) Known(l *lease.Lease, err error) {
	hook := c.queue.cfg.Hooks.Dead
	if err != nil || l.Op != lease.Dead || hook == nil {
		return
	}
	details := l.Rare.Read()
	e := DeadEvent{Queue: c.queue.cfg.Label, ID: l.Item.ID, Attempt: int(l.Attempt), Cause: details.Cause,
		Reason: c.reasonOf(details)}
	if d, known := details.About.Load().(*Delivery); known {
		e.Key, e.DedupKey, e.Type, e.Headers = d.Key, d.DedupKey, d.Type, d.Headers
	}
	call(hook, e)
}

// Describe makes a Delivery of a message that no reader has seen, for the events of its lease. It omits headers that
// cannot be decoded.
func (c *consumer) Describe(l *lease.Lease, row *table.Claimed) {
	d := &Delivery{}
	d.fill(c.queue, l, row)
	d.Headers, _ = decodeHeaders(row.Headers)
	l.Rare.Write().About.Store(d)
}

// Settled records the counts of a batch of settles.
func (c *consumer) Settled(t settle.Tally, took time.Duration) {
	c.queue.settled(SettledEvent{Acked: t.Acked, Nacked: t.Nacked, Released: t.Released, Dead: t.Dead, Lost: t.Lost,
		Took: took})
}

// settled counts messages that are settled, or will be if a transaction is committed, and calls the hook.
func (q *queue) settled(e SettledEvent) {
	e.Queue = q.cfg.Label
	q.recorder.Add(sqlbatch.Sample{Acked: int64(e.Acked + e.Attempted), Nacked: int64(e.Nacked), Died: int64(e.Dead)})
	call(q.cfg.Hooks.Settled, e)
}

// Lost returns a function that calls the LeaseLost hook, or nil.
func (c *consumer) Lost(l *lease.Lease, confirmed bool) (report func()) {
	hook := c.queue.cfg.Hooks.LeaseLost
	if hook == nil {
		return nil
	}
	e := LeaseLostEvent{Queue: c.queue.cfg.Label, ID: l.Item.ID, Attempt: int(l.Attempt), Confirmed: confirmed}
	return func() { call(hook, e) }
}

// reasonOf returns the reason of a dead letter for hooks.
func (c *consumer) reasonOf(d *lease.Details) string {
	if d.Quiet {
		return "chanq: cannot decode: chanq peek --state dead " + c.queue.names.Queue + " shows why"
	}
	return base.Redact(d.Text)
}

// Claimed rows become leases with bodies.
//
// A reader may keep a lease long after its ack. That must not keep neighbouring leases in memory, so leases share
// little: a slab has few leases with few bytes of bodies in all, bytes are in small chunks, and a large body is stored
// alone. A codec may make a value of any size from few bytes. Leases with such values share only the slab of their
// inner parts, which refer to no message. Shared memory is less than 48 KiB in all.
const (
	slabBytes = 8 << 10 // of keys, headers and bodies whose leases share a slab
	// headersGrow is about the largest ratio of the size of decoded headers (a map, and a string for each name and
	// value) to that of encoded ones.
	headersGrow = 8
)

// build appends the leases that readers get. It dead-letters messages that cannot be decoded, and releases leases that
// have expired.
func build[T any](c *consumer, b claim.Batch, into []*Lease[T]) []*Lease[T] {
	var slab []Lease[T]
	var dead []*lease.Lease
	for i, under := range b.Leases {
		if len(slab) == 0 {
			slab = make([]Lease[T], sharing[T](b.Rows[i:]))
		}
		l := &slab[0] // also for omitted leases, because their weight is counted
		slab = slab[1:]
		if under.State() != lease.Held {
			c.engine.Skip(under)
			continue
		}
		if err := l.fill(c.queue, under, &b.Rows[i]); err != nil {
			c.Describe(under, &b.Rows[i])
			under.Rare.Write().Quiet = true // the text of a decoder's error may contain parts of the body
			if under.DeadLetter(CauseUndecodable, fmt.Sprintf("%s%v", base.ReasonDecode,
				err)); under.State() == lease.Settling {
				dead = append(dead, under)
			}
			continue
		}
		into = append(into, l)
	}
	if len(dead) > 0 {
		c.engine.SettleAll(dead...)
	}
	return into
}

// sharing returns how many leases of the first rows may share a slab.
func sharing[T any](rows []table.Claimed) int {
	if meetsCodec[T]() {
		return 1
	}
	n, size := 1, weight(&rows[0])
	for n < len(rows) && n < claim.SlabLeases {
		if size += weight(&rows[n]); size > slabBytes {
			break
		}
		n++
	}
	return n
}

// weight estimates the bytes of memory of the row's part of a lease.
func weight(row *table.Claimed) int {
	return len(row.Key) + len(row.Type) + headersGrow*len(row.Headers) + max(row.Size, len(row.Body))
}

// fill makes a Delivery of a message, without its headers.
func (d *Delivery) fill(q *queue, under *lease.Lease, row *table.Claimed) {
	d.lease = under
	d.ID, d.Queue, d.Priority, d.Key = row.Item.ID, q.cfg.Label, Priority(row.Priority), row.OrderKey
	d.Attempt, d.Fence = row.Attempts, row.Item.Fence
	if under.Message != nil {
		d.Fence = under.Delivery
	}
	d.EnqueuedAt, d.DueAt = time.UnixMilli(row.Enqueued), time.UnixMilli(row.Due)
	if row.Expires.Valid {
		d.ExpiresAt = time.UnixMilli(row.Expires.Int64)
	}
	d.DedupKey, d.Type = string(row.Key), string(row.Type)
}

// fill makes a lease of a message. It returns the error of a decoder.
func (l *Lease[T]) fill(q *queue, under *lease.Lease, row *table.Claimed) (err error) {
	l.Delivery.fill(q, under, row)
	if l.Headers, err = decodeHeaders(row.Headers); err != nil {
		return err
	}
	return decodeBody(q.cfg.Codec, row.Body, &l.Body)
}

// holderOf returns the consumer that claimed a lease.
func holderOf(l *lease.Lease) *consumer { return l.Home.Of.(*consumer) }

// skip reports whether a lease expired in the buffer, and has its consumer release it.
func skip[T any](l *Lease[T]) bool {
	return l.lease.Gone() && holderOf(l.lease).engine.Skip(l.lease)
}
