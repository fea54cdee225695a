package chanq

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// The claimer: one goroutine that keeps the buffer of a consumer filled.
//
// A claim asks for the free room of the buffer, when at least half of what it
// may hold is free, and never for more than readers took in the last second: a
// slow replica does not hoard. A full batch means that more may be there, so
// the next claim follows at once. A short one is no proof of an empty queue,
// since rows that others have locked are skipped: it is followed by a pause of
// PollMin, or a quarter of it where the claim was worth its statement, an empty
// one by doubling pauses up to PollMax, in which the due time of the next message
// is read (no lock, no write) instead of claiming. A producer of the same process
// ends a pause.

// flow is what the claimer knows of its readers' pace. Only the claimer uses it,
// save skipped.
type flow struct {
	delivered int64        // leases sent on the channel
	skipped   atomic.Int64 // of those, the ones that readers dropped
	samples   []flowSample
	meanBytes int // of a body, by the last claim
	lastClaim int // messages of the last claim
}

type flowSample struct {
	at    time.Duration
	taken int64
}

// takenLately is how many leases readers took in about the last second.
func (f *flow) takenLately(now time.Duration, buffered int) int {
	taken := f.delivered - int64(buffered) - f.skipped.Load()
	f.samples = append(f.samples, flowSample{now, taken})
	for len(f.samples) > 1 && now-f.samples[1].at >= time.Second {
		f.samples = f.samples[1:]
	}
	if len(f.samples) > 256 { // keep every other: the oldest decides
		half := f.samples[:0:0]
		for i := 0; i < len(f.samples); i += 2 {
			half = append(half, f.samples[i])
		}
		f.samples = half
	}
	return int(taken - f.samples[0].taken)
}

// worthwhile is how many messages make a short claim worth its statement: from
// here on the rows cost more than the round trip.
const worthwhile = 64

// claimAll runs until Stop, then gives the buffer back and closes the channel.
func (c *Consumer[T]) claimAll() {
	defer close(c.out)
	defer c.releaseBuffer()
	idle, retry := backoff{low: c.cfg.PollMin, high: c.cfg.PollMax}, retries()
	c.connect()
	for {
		n := c.waitForRoom()
		if n == 0 {
			return
		}
		began := time.Now()
		got, err := c.claim(n)
		switch {
		case err != nil:
			class := classify(c.queue.dialect, err)
			if class == sqlbatch.NoSchema || class == sqlbatch.Permanent {
				c.fail(c.queue.fail("claim", err))
				return
			}
			if retry.outage(class, began) && c.settler.abandoned.Err() == nil {
				c.health.failed(began, err)
			}
			sleep(c.stop, retry.after(class))
		case got == n:
			retry.reset()
			idle.reset()
		case got > 0:
			retry.reset()
			idle.reset()
			pause := idle.pause()
			if got >= worthwhile {
				pause /= 4
			}
			c.pause(pause)
		default:
			retry.reset()
			c.waitForMessage(&idle)
		}
	}
}

// connect takes the connections before there is anything to hand to readers,
// where they are few. What fails is met again by the claim.
func (c *Consumer[T]) connect() {
	ctx, cancel := context.WithTimeout(c.stop, c.cfg.Statement)
	defer cancel()
	began := time.Now()
	if err := c.sessions.fill(ctx, c.queue.db); err != nil && c.stop.Err() == nil {
		c.health.failed(began, err)
	}
}

// waitForRoom returns how many messages to claim next, 0 after Stop.
func (c *Consumer[T]) waitForRoom() int {
	look := c.cfg.PollMin
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for c.stop.Err() == nil {
		buffered := len(c.out)
		most := min(c.cfg.Prefetch, max(minClaim, c.flow.takenLately(monotonic(), buffered)))
		room := min(most-buffered, c.queue.dialect.Traits().ClaimRows)
		if c.flow.meanBytes > 0 {
			fit := c.cfg.PrefetchBytes/c.flow.meanBytes - buffered
			if buffered == 0 {
				fit = max(fit, 1) // a body larger than all of the room comes alone
			}
			room = min(room, fit)
		}
		crowded := c.settler.len() > c.settler.capacity/2
		if buffered <= most/2 && !crowded && room > 0 {
			c.wakeAt.Store(0)
			return room
		}
		// The channel does not tell when it is read. When as many leases have ended
		// as it holds too many, it must have been; readers that take without
		// settling are noticed by the clock.
		c.wakeAt.Store(c.taken.Load() + int64(max(1, buffered-most/2)))
		timer.Reset(look)
		look = min(2*look, 100*time.Millisecond)
		select {
		case <-c.stop.Done():
		case <-c.progress:
		case <-timer.C:
		}
	}
	return 0
}

// pause waits for d, a ring of the bell, or Stop. It reports a ring.
func (c *Consumer[T]) pause(d time.Duration) (rung bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.stop.Done():
	case <-c.bell:
		return true
	case <-timer.C:
	}
	return false
}

// waitForMessage returns when a claim may find something, or after Stop.
func (c *Consumer[T]) waitForMessage(idle *backoff) {
	c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
	// The first look is before the first pause, which may be long already: a bell
	// that rang for a scheduled message does not shorten it. What is due by now,
	// though the claim did not get it, is locked by others, and waits.
	wait := idle.poll()
	if due, any, err := c.nextDue(); err == nil && any && due > 0 {
		wait = min(wait, due)
	}
	for c.stop.Err() == nil && !c.pause(wait) {
		due, any, err := c.nextDue()
		if err != nil {
			return // the claim meets the error, too, and deals with it
		}
		if any && due <= 0 {
			return
		}
		wait = idle.poll()
		if any {
			wait = min(wait, due)
		}
	}
}

func (c *Consumer[T]) nextDue() (due time.Duration, any bool, err error) {
	var ms sql.NullInt64
	ctx, cancel := context.WithTimeout(c.settler.abandoned, c.cfg.Statement)
	defer cancel()
	err = c.sessions.run(ctx, c.queue.sql.NextDue(), func(rows *sql.Rows) error { return rows.Scan(&ms) })
	if err == nil {
		c.count(func(s *ConsumerStats) { s.Looks++ })
	}
	return time.Duration(ms.Int64) * time.Millisecond, ms.Valid, err
}

func (c *Consumer[T]) count(f func(*ConsumerStats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// claim leases up to n messages and delivers them. It is not cancelled by Stop:
// its rows would be leased to nobody. They are anyway when Shutdown has given up.
func (c *Consumer[T]) claim(n int) (int, error) {
	start := monotonic()
	ctx, cancel := context.WithTimeout(c.settler.abandoned, c.cfg.Statement)
	defer cancel()
	rows := claimedRows{rows: make([]claimedRow, 0, min(n, max(minClaim, c.flow.lastClaim)))}
	err := c.sessions.run(ctx, c.queue.sql.Claim(sqlbatch.ClaimParams{
		Rows: n, Lease: c.cfg.LeaseFor, Member: c.member, Salt: newSalt(), Order: c.cfg.Order, Suspects: true,
	}), rows.scan)
	if err != nil {
		return 0, err
	}
	c.health.worked(processStart.Add(start))
	got := len(rows.rows)
	if got == 0 {
		return 0, nil
	}
	rows.sort()
	c.flow.lastClaim, c.flow.meanBytes = got, max(1, rows.bytes/got)
	c.count(func(s *ConsumerStats) { s.Claims++; s.Claimed += int64(got) })
	event := ClaimedEvent{Queue: c.queue.name, Messages: got, Bytes: rows.bytes, Took: monotonic() - start}
	leases := buildLeases[T](c.queue, rows.rows, c, deadlineAfter(start, c.cfg.LeaseFor), start+c.cfg.MaxExtend)
	c.deliver(leases)
	call(c.queue.cfg.Hooks.Claimed, event) // they are extended by now, however long it takes
	return got, nil
}

// deliver hands new leases to the keeper and to the readers. There is room for
// them in the channel.
func (c *Consumer[T]) deliver(leases []*Lease[T]) {
	c.held.Add(int64(len(leases)))
	holds := make([]*lease, len(leases))
	for i, l := range leases {
		holds[i] = l.lease
	}
	c.keeper.hold(holds)
	var unfit []*lease
	for _, l := range leases {
		if l.lease.state.Load() == leaseSettling {
			unfit = append(unfit, l.lease)
			continue
		}
		c.flow.delivered++
		c.out <- l
	}
	if len(unfit) > 0 {
		c.settler.addAll(unfit)
	}
}

// releaseBuffer takes back what no reader has taken.
func (c *Consumer[T]) releaseBuffer() {
	var back []*lease
	for {
		select {
		case l := <-c.out:
			if s := l.lease.state.Load(); (s == leaseHeld || s == leaseExpired) && l.lease.state.CompareAndSwap(s, leaseSettling) {
				l.lease.op = settleRelease
				back = append(back, l.lease)
			}
		default:
			c.settler.addAll(back)
			return
		}
	}
}

// claimedRow is a row of a claim, its bytes copied into the arena.
type claimedRow struct {
	item               sqlbatch.Item
	priority           Priority
	attempts, lapses   int
	expired            bool
	enqueued, due      int64
	key, headers, body []byte
}

// claimedRows collects a claim: nothing of it may be used before the statement
// is known to have succeeded.
type claimedRows struct {
	rows  []claimedRow
	bytes int // of bodies
	arena []byte

	id, key, headers, body            sql.RawBytes
	priority, fence, attempts, lapses int64
	expired, enqueued, due            int64
}

const arenaChunk = 64 << 10

// newSalt is what keeps the fences of two claims apart: see sqlbatch.FenceBits.
func newSalt() int64 { return 1 + rand.Int64N(1<<sqlbatch.FenceBits) }

func (r *claimedRows) scan(rows *sql.Rows) error {
	if err := rows.Scan(&r.id, &r.priority, &r.fence, &r.attempts, &r.lapses, &r.expired, &r.enqueued, &r.due, &r.key, &r.headers, &r.body); err != nil {
		return err
	}
	row := claimedRow{
		priority: Priority(r.priority), attempts: int(r.attempts), lapses: int(r.lapses), expired: r.expired != 0, enqueued: r.enqueued, due: r.due,
		key: r.keep(r.key), headers: r.keep(r.headers), body: r.keep(r.body),
	}
	copy(row.item.ID[:], r.id)
	row.item.Fence = r.fence
	r.bytes += len(row.body)
	r.rows = append(r.rows, row)
	return nil
}

// keep copies bytes that the driver will overwrite. The copies share chunks.
func (r *claimedRows) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	if len(b) > cap(r.arena)-len(r.arena) {
		r.arena = make([]byte, 0, max(arenaChunk, len(b)))
	}
	n := len(r.arena)
	r.arena = append(r.arena, b...)
	return r.arena[n:len(r.arena):len(r.arena)]
}

// sort puts the rows in the order of delivery, which no database promises for
// the rows that an UPDATE returns.
func (r *claimedRows) sort() {
	order := func(a, b claimedRow) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.due, b.due), bytes.Compare(a.item.ID[:], b.item.ID[:]))
	}
	if !slices.IsSortedFunc(r.rows, order) {
		slices.SortFunc(r.rows, order)
	}
}

// buildLeases makes leases of the rows of one claim. Those that no handler may
// see, because their attempts are spent or their body cannot be decoded, come
// back in state settling, to be set aside.
func buildLeases[T any](q *queue, rows []claimedRow, owner leaseOwner, deadline, until time.Duration) []*Lease[T] {
	slab, inner := make([]Lease[T], len(rows)), make([]lease, len(rows))
	leases := make([]*Lease[T], len(rows))
	for i := range rows {
		row, l := &rows[i], &slab[i]
		leases[i], l.lease = l, &inner[i]
		l.ID, l.Priority, l.DedupKey = row.item.ID, row.priority, string(row.key)
		l.Attempt = row.attempts
		l.EnqueuedAt, l.DueAt = time.UnixMilli(row.enqueued), time.UnixMilli(row.due)
		l.lease.owner, l.lease.item, l.lease.due, l.lease.attempt = owner, row.item, row.due, row.attempts
		l.lease.deadline.Store(int64(deadline))
		l.lease.until.Store(int64(until))
		if row.attempts > q.cfg.MaxAttempts {
			l.lease.attempt-- // this claim is no attempt: nobody gets the message
		}
	}
	fill := func(i int) {
		if reason, quiet := leases[i].fill(q, &rows[i]); reason != "" {
			leases[i].lease.setAside(reason, quiet)
		}
	}
	if meetsCodec[T]() {
		inTurn(len(rows), fill, func(i int) {
			leases[i].lease.setAside(fmt.Sprintf("chanq: cannot decode: codec %v", errLeft), true)
		})
		return leases
	}
	for i := range rows {
		fill(i)
	}
	return leases
}

// setAside has a lease that nobody has seen buried.
func (l *lease) setAside(reason string, quiet bool) {
	l.op, l.text, l.quiet = settleDead, reason, quiet
	l.state.Store(leaseSettling)
}

// fill decodes headers and body, and says why the message must be set aside.
// Decoders repeat what they cannot read, so their words are quiet.
func (l *Lease[T]) fill(q *queue, row *claimedRow) (reason string, quiet bool) {
	if row.attempts > q.cfg.MaxAttempts {
		return fmt.Sprintf("chanq: claimed %d times without being settled: its handlers died or lost their leases", row.attempts-1), false
	}
	var err error
	if l.Headers, err = decodeHeaders(row.headers); err == nil {
		err = decodeBody(q.cfg.Codec, row.body, &l.Body)
	}
	if err != nil {
		return fmt.Sprintf("chanq: cannot decode: %v", err), true
	}
	return "", false
}
