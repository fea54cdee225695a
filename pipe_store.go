package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/group"
	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a Pipe: one goroutine, one transaction at a time.

// groupConfig: as many inputs as one statement acks, or 4 MiB or so of outputs.
func (p *pipe[In, Out]) groupConfig() group.Config[*piped[Out]] {
	most, linger := p.from.queue.dialect.Traits().AckItems, p.from.cfg.linger()
	room := 2 * most
	if p.from.merged != nil {
		room = 0 // workers do not wait for one place, since they work for all: claims do, see crowded
	}
	return group.Config[*piped[Out]]{
		Full: most, Capacity: room, Linger: linger, AwaitedLinger: linger, Cut: p.fit, Abandoned: p.from.abandoned,
	}
}

// storeAll stores groups of what the workers have done: as many as are there. It
// returns when they have ended, and nothing is late.
func (p *pipe[In, Out]) storeAll() {
	p.sessions.connect(p.from.abandoned, p.from.cfg.StatementTimeout)
	p.groups = p.backlog.Worker()
	for items, open := p.groups.Next(); open; items, open = p.groups.Next() {
		p.store(items)
		p.groups.Done()
	}
	p.to.queue.ringer.end() // for what was stored before the last group failed
	p.sessions.close()
}

// crowded: more than a group waits.
func (p *pipe[In, Out]) crowded() bool {
	return p.backlog.Waiting() > p.from.queue.dialect.Traits().AckItems
}

// fit is how many of the first inputs fit one transaction.
func (p *pipe[In, Out]) fit(items []*piped[Out]) int {
	size := 0
	for i, item := range items {
		if size += item.Size; i > 0 && size > p.to.cfg.BatchBytes {
			return i
		}
	}
	return len(items)
}

// parts is how many parts a group is cut into that did not get into the database in
// time. One of them is met again by whatever was in the way, so there are many: each
// cut costs another try that runs out.
const parts = 8

// store replaces inputs by outputs, but for those that go to late. Parts of a group
// that failed go behind the others, and an input that failed alone is by itself.
func (p *pipe[In, Out]) store(items []*piped[Out]) {
	var parts [][]*piped[Out]
	together := make([]*piped[Out], 0, len(items))
	for _, item := range items {
		if item.failed {
			parts = append(parts, []*piped[Out]{item})
		} else {
			together = append(together, item)
		}
	}
	if len(together) > 0 {
		parts = append([][]*piped[Out]{together}, parts...)
	}
	for len(parts) > 0 {
		again := p.storePart(parts[0])
		parts = append(parts[1:], again...)
	}
}

// storePart replaces inputs by outputs in one transaction, repeated until the outcome
// is known, or returns the parts that are to be tried apart from each other.
func (p *pipe[In, Out]) storePart(items []*piped[Out]) (again [][]*piped[Out]) {
	start := time.Now()
	slices.SortFunc(items, func(a, b *piped[Out]) int { return compareItems(a.in.item, b.in.item) })
	acks := p.from.queue.sql.InOwnTx()
	var held []sqlbatch.Item
	sent := 0
	var undone time.Time // when the first of the tries in a row began that the database has undone
	loop := p.loop
	loop.Timeout = p.timeout(items)
	f := loop.UntilKnown(p.from.abandoned, func(ctx context.Context) error {
		return p.sessions.InTx(ctx, func(tx *sql.Tx) (err error) {
			held, sent, err = p.replace(ctx, tx, acks, items)
			return err
		})
	}, func(f *retry.Failure) retry.Next {
		if f.Class != sqlbatch.RolledBack {
			undone = time.Time{}
		} else if undone.IsZero() {
			undone = f.Began
		}
		switch {
		case f.Class == sqlbatch.RolledBack:
			// An input may be locked, or an output wait for a key: the repetition passes over
			// the one, and waits for the other as long as it may. The database may let it
			// wait for less than a try: then several tries are as long.
			acks = p.from.queue.sql.InTx().SkipLocked()
		case f.Class == sqlbatch.Unknown, session.Fell(f.Err):
			for _, item := range items {
				item.in.unknown = true
			}
		}
		waited := !undone.IsZero() && time.Since(undone) >= loop.Timeout
		if f.Class == sqlbatch.BadRow || isPermanent(f.Class) || waited || ranOut(f, loop.Timeout) {
			return retry.Stop
		}
		return retry.Again
	})
	if f == nil {
		p.conclude(items, held, sent, start)
		return nil
	}
	first := items[0]
	switch {
	case p.from.abandoned.Err() != nil:
		p.giveUp(items, f.Err)
	case isPermanent(f.Class):
		p.giveUp(items, f.Err)
		p.from.broken(p.from.queue.fail("pipe", f.Err))
	case len(items) > 1 && f.Class == sqlbatch.BadRow:
		return slices.Collect(slices.Chunk(items, (len(items)+1)/2))
	case len(items) > 1:
		return slices.Collect(slices.Chunk(items, (len(items)+parts-1)/parts))
	case f.Class == sqlbatch.BadRow:
		p.handBack(first.in, settleDead, fmt.Errorf("%s%w", reasonOutput, f.Err))
	case first.failed:
		p.nack(first.in, fmt.Errorf("%s%w", reasonOutput, f.Err))
	default:
		// What has come meanwhile goes before the second try.
		first.failed = true
		p.groups.Late(first, p.from.cfg.tryTimeout())
	}
	return nil
}

// ranOut reports that a try which had that much time was under way when it was over.
func ranOut(f *retry.Failure, timeout time.Duration) bool {
	var notRun *session.NotRunError
	return time.Since(f.Began) >= timeout && !(errors.As(f.Err, &notRun) && notRun.Unconnected)
}

// timeout of a transaction. One that holds several inputs is cut into parts then, and
// one that holds a single input goes behind the others; that one's second try has all
// the time there is.
func (p *pipe[In, Out]) timeout(items []*piped[Out]) time.Duration {
	if items[0].failed {
		return p.from.cfg.StatementTimeout
	}
	return p.from.cfg.tryTimeout()
}

// nack gives an input back that cannot be replaced in time.
func (p *pipe[In, Out]) nack(l *lease, err error) {
	call(p.from.queue.cfg.Hooks.Failed, FailedEvent{Queue: p.from.queue.name, Shard: p.from.queue.shard, ID: l.item.ID, Attempt: l.attempt, Err: err})
	l.delay = nackDelay(p.from.backoff(l.failures()))
	p.handBack(l, l.nackOp(), err)
}

// handBack hands an input to the settler.
func (p *pipe[In, Out]) handBack(l *lease, op settleOp, err error) {
	l.op, l.text = op, err.Error()
	p.from.settler.addAll(l)
}

// replace acks the inputs in tx, but for those that somebody has locked, and stores
// the outputs of those that it acked.
func (p *pipe[In, Out]) replace(ctx context.Context, tx *sql.Tx, acks sqlbatch.Queue, group []*piped[Out]) (held []sqlbatch.Item, sent int, err error) {
	items := make([]sqlbatch.Item, len(group))
	for i := range group {
		items[i] = group[i].in.item
	}
	if err := session.RunTx(ctx, tx, p.from.queue.ackStatement(acks, items), session.CollectItems(&held)); err != nil {
		return nil, 0, err
	}
	slices.SortFunc(held, compareItems)
	var rows []sqlbatch.Row
	keyed := false
	for i := range group {
		if _, ok := slices.BinarySearchFunc(held, group[i].in.item, compareItems); ok {
			rows = append(rows, group[i].rows...)
			keyed = keyed || group[i].keys
		}
	}
	if err := p.to.queue.metTx(ctx, tx); err != nil {
		return nil, 0, err
	}
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return session.RunTx(ctx, tx, st, scan) }
	for sent < len(rows) {
		chunk := rows[sent:]
		chunk = chunk[:cut(chunk, p.to.cfg.BatchRows, p.to.cfg.BatchBytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, keyed })]
		receipts := make([]Receipt, len(chunk))
		if err := p.to.queue.enqueue(ctx, run, p.to.queue.sql.InTx(), chunk, receipts, keyed); err != nil {
			return nil, 0, err
		}
		sent += len(chunk)
	}
	return held, sent, nil
}

// conclude tells each input its outcome: those that were not acked are looked at. What
// is locked is stored later, apart from what comes meanwhile.
func (p *pipe[In, Out]) conclude(items []*piped[Out], held []sqlbatch.Item, sent int, start time.Time) {
	tally := settleTally{event: SettledEvent{Queue: p.from.queue.name, Shard: p.from.queue.shard}}
	var missing []*lease
	unknown := false
	for i := range items {
		l := items[i].in
		if _, ok := slices.BinarySearchFunc(held, l.item, compareItems); ok {
			tally.count(settleAck)
			l.finish(nil)
		} else {
			missing = append(missing, l)
			unknown = unknown || l.unknown
		}
	}
	if sent > 0 || unknown {
		p.to.queue.ring(max(1, sent), p.backlog.Open() > len(items))
	}
	if sent > 0 {
		p.to.queue.recorder.sent.Add(int64(sent))
		call(p.to.queue.cfg.Hooks.Sent, SentEvent{Queue: p.to.queue.name, Shard: p.to.queue.shard, Messages: sent, Took: time.Since(start)})
	}
	if len(missing) > 0 {
		locked := p.lookAfter(missing, &tally)
		for i := range items {
			if l := items[i].in; locked[l] {
				p.groups.Late(items[i], l.foundLocked())
			}
		}
	}
	if tally.event.Acked+tally.event.Lost > 0 {
		tally.event.Took = time.Since(start)
		p.from.queue.recorder.settled(tally.event)
		call(p.from.queue.cfg.Hooks.Settled, tally.event)
		p.from.settled(tally.event)
	}
}

// lookAfter finishes those of the inputs whose rows are not locked, and returns the
// others.
func (p *pipe[In, Out]) lookAfter(missing []*lease, tally *settleTally) (locked map[*lease]bool) {
	var seen sight
	loop := p.loop
	f := loop.UntilKnown(p.from.abandoned, func(ctx context.Context) (err error) {
		seen, err = p.from.queue.look(ctx, p.sessions, p.from.cfg.tryTimeout(), missing)
		return err
	}, func(f *retry.Failure) retry.Next {
		if isPermanent(f.Class) {
			return retry.Stop
		}
		return retry.Again
	})
	if f != nil {
		for _, l := range missing {
			p.giveUpLease(l, f.Err)
		}
		if isPermanent(f.Class) {
			p.from.broken(p.from.queue.fail("pipe", f.Err))
		}
		return nil
	}
	locked = map[*lease]bool{}
	for _, l := range missing {
		if f := l.fate(seen.of(l.item)); f == fateLocked {
			locked[l] = true
		} else {
			p.from.settler.finish(batch.Outcome[*lease]{Item: l, Err: f.err(), Unknown: f == fateHidden}, tally)
			p.from.moved(l)
		}
	}
	return locked
}

func (p *pipe[In, Out]) giveUp(items []*piped[Out], err error) {
	for i := range items {
		p.giveUpLease(items[i].in, err)
	}
}

func (p *pipe[In, Out]) giveUpLease(l *lease, err error) {
	l.finish(&OpError{Op: "pipe", Queue: p.from.queue.name, Shard: p.from.queue.shard, ID: l.item.ID, Unknown: l.unknown, Err: err})
}
