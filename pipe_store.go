package chanq

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a Pipe: one goroutine, one transaction at a time.

// latePiped is an input whose row was locked, or that failed alone.
type latePiped[Out any] struct {
	piped[Out]
	at time.Time // not before
}

// storeAll stores groups of what the workers have done: as many as are there. It
// returns when they have ended, and nothing is late.
func (p *pipe[In, Out]) storeAll() {
	p.connect()
	pace := pacer{full: p.from.queue.dialect.Traits().AckItems, linger: p.from.cfg.linger()}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var carry []piped[Out]
	items := p.groups // nil when they have ended
	for items != nil || len(p.late)+len(carry) > 0 {
		late, wait := p.takeLate()
		if len(late) > 0 {
			p.store(late)
			continue
		}
		group := carry
		carry = nil
		if len(group) == 0 {
			var abandoned <-chan struct{}
			if len(p.late) > 0 {
				abandoned = p.from.settler.abandoned.Done()
			}
			timer.Reset(wait)
			select {
			case item, open := <-items:
				if !open {
					items = nil
					continue
				}
				group = append(group, item)
			case <-timer.C:
				continue
			case <-abandoned:
				continue
			}
		}
		group, carry = p.fit(p.gather(group, &pace, timer))
		pace.last = len(group)
		p.store(group)
	}
}

// connect takes the connection before it is needed, where there are few. What fails is
// met again by the first group.
func (p *pipe[In, Out]) connect() {
	ctx, cancel := context.WithTimeout(p.from.settler.abandoned, p.from.cfg.StatementTimeout)
	defer cancel()
	_ = p.sessions.Fill(ctx)
}

// gather adds to a group what comes until it is due.
func (p *pipe[In, Out]) gather(group []piped[Out], pace *pacer, timer *time.Timer) []piped[Out] {
	since := time.Now()
	for len(group) < pace.full {
		select {
		case item, open := <-p.groups:
			if !open {
				return group
			}
			group = append(group, item)
			continue
		default:
		}
		due, wait := pace.due(len(group), since)
		if due {
			break
		}
		timer.Reset(wait)
		select {
		case item, open := <-p.groups:
			if !open {
				return group
			}
			group = append(group, item)
		case <-timer.C:
		}
	}
	return group
}

// fit splits off what does not fit one transaction: 4 MiB or so of outputs.
func (p *pipe[In, Out]) fit(group []piped[Out]) (now, later []piped[Out]) {
	size := 0
	for i := range group {
		if size += group[i].size; i > 0 && size > p.to.cfg.BatchBytes {
			return group[:i:i], group[i:]
		}
	}
	return group, nil
}

// takeLate removes those of late whose time has come, as many as fit one transaction,
// or says how long that takes.
func (p *pipe[In, Out]) takeLate() (group []piped[Out], wait time.Duration) {
	now, wait := time.Now(), time.Hour
	most := p.from.queue.dialect.Traits().AckItems
	abandoned := p.from.settler.abandoned.Err() != nil
	p.late = slices.DeleteFunc(p.late, func(l latePiped[Out]) bool {
		if left := l.at.Sub(now); left > 0 && !abandoned || len(group) == most {
			wait = min(wait, left)
			return false
		}
		group = append(group, l.piped)
		return true
	})
	group, later := p.fit(group)
	for i := range later {
		p.late = append(p.late, latePiped[Out]{later[i], now})
	}
	return group, wait
}

// pieces is how many parts a group is cut into that did not get into the database in
// time. One of them is met again by whatever was in the way, so there are many: each
// cut costs another try that runs out.
const pieces = 8

// store replaces inputs by outputs, but for those that go to late. Parts of a group
// that failed go behind the others, and an input that failed alone is by itself.
func (p *pipe[In, Out]) store(group []piped[Out]) {
	var parts [][]piped[Out]
	together := make([]piped[Out], 0, len(group))
	for _, item := range group {
		if item.failed {
			parts = append(parts, []piped[Out]{item})
		} else {
			together = append(together, item)
		}
	}
	if len(together) > 0 {
		parts = append([][]piped[Out]{together}, parts...)
	}
	for len(parts) > 0 {
		again := p.storePart(parts[0])
		parts = append(parts[1:], again...)
	}
}

// storePart replaces inputs by outputs in one transaction, repeated until the outcome
// is known, or returns the parts that are to be tried apart from each other.
func (p *pipe[In, Out]) storePart(group []piped[Out]) (again [][]piped[Out]) {
	start := time.Now()
	slices.SortFunc(group, func(a, b piped[Out]) int { return compareItems(a.in.item, b.in.item) })
	abandoned := p.from.settler.abandoned
	pause := retries()
	acks := p.from.queue.sql.InOwnTx()
	for {
		var held []sqlbatch.Item
		sent := 0
		began, timeout := time.Now(), p.timeout(group)
		ctx, cancel := context.WithTimeout(abandoned, timeout)
		err := p.sessions.InTx(ctx, func(tx *sql.Tx) (err error) {
			held, sent, err = p.replace(ctx, tx, acks, group)
			return err
		})
		cancel()
		if err == nil {
			p.from.health.worked(began)
			p.finish(group, held, sent, start)
			return nil
		}
		class := classify(p.from.queue.dialect, err)
		if class == sqlbatch.RolledBack {
			// An input may be locked, or an output wait for a key: the repetition passes over
			// the one, and waits for the other as long as it may.
			acks = p.from.queue.sql.InTx().SkipLocked()
		}
		if class == sqlbatch.Unknown {
			for i := range group {
				group[i].in.unknown = true
			}
		}
		late := ranOut(err, began, timeout)
		switch {
		case abandoned.Err() != nil:
			p.giveUp(group, err)
			return nil
		case class == sqlbatch.NoSchema, class == sqlbatch.Permanent:
			p.giveUp(group, err)
			p.from.fail(p.from.queue.fail("pipe", err))
			return nil
		case len(group) > 1 && class == sqlbatch.BadRow:
			return slices.Collect(slices.Chunk(group, (len(group)+1)/2))
		case len(group) > 1 && late:
			return slices.Collect(slices.Chunk(group, (len(group)+pieces-1)/pieces))
		case class == sqlbatch.BadRow:
			p.settle(group[0].in, settleDead, err)
			return nil
		case late && group[0].failed:
			p.nack(group[0].in, err)
			return nil
		case late:
			// What has come meanwhile goes before the second try.
			group[0].failed = true
			p.late = append(p.late, latePiped[Out]{group[0], time.Now().Add(p.from.cfg.try())})
			return nil
		case pause.outage(class, began):
			p.from.health.failed(began, err)
		}
		sleep(abandoned, pause.after(class))
	}
}

// timeout of a transaction. One that holds several inputs is cut into parts then, and
// one that holds a single input goes behind the others; that one's second try has all
// the time there is.
func (p *pipe[In, Out]) timeout(group []piped[Out]) time.Duration {
	if group[0].failed {
		return p.from.cfg.StatementTimeout
	}
	return p.from.cfg.try()
}

// nack gives an input back that cannot be replaced in time.
func (p *pipe[In, Out]) nack(l *lease, err error) {
	call(p.from.queue.cfg.Hooks.Failed, FailedEvent{Queue: p.from.queue.name, ID: l.item.ID, Attempt: l.attempt, Err: err})
	l.delay = nackDelay(p.from.backoff(l.failures()))
	p.settle(l, l.nackOp(), err)
}

// settle hands an input to the settler.
func (p *pipe[In, Out]) settle(l *lease, op settleOp, err error) {
	l.op, l.text = op, err.Error()
	p.from.settler.addAll([]*lease{l})
}

// replace acks the inputs in tx, but for those that somebody has locked, and stores
// the outputs of those that it acked.
func (p *pipe[In, Out]) replace(ctx context.Context, tx *sql.Tx, acks sqlbatch.Queue, group []piped[Out]) (held []sqlbatch.Item, sent int, err error) {
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

// finish tells each input its outcome: those that were not acked are looked at. What
// is locked is stored later, apart from what comes meanwhile.
func (p *pipe[In, Out]) finish(group []piped[Out], held []sqlbatch.Item, sent int, start time.Time) {
	tally := settleTally{event: SettledEvent{Queue: p.from.queue.name}}
	var missing []*lease
	unknown := false
	for i := range group {
		l := group[i].in
		if _, ok := slices.BinarySearchFunc(held, l.item, compareItems); ok {
			tally.done(settleAck)
			l.finish(nil)
		} else {
			missing = append(missing, l)
			unknown = unknown || l.unknown
		}
	}
	if sent > 0 || unknown {
		p.to.queue.key.ring()
	}
	if sent > 0 {
		call(p.to.queue.cfg.Hooks.Sent, SentEvent{Queue: p.to.queue.name, Messages: sent, Took: time.Since(start)})
	}
	if len(missing) > 0 {
		locked := p.finishMissing(missing, &tally)
		for i := range group {
			if l := group[i].in; locked[l] {
				p.late = append(p.late, latePiped[Out]{group[i], time.Now().Add(l.foundLocked())})
			}
		}
	}
	if tally.event.Acked+tally.event.Lost > 0 {
		tally.event.Took = time.Since(start)
		call(p.from.queue.cfg.Hooks.Settled, tally.event)
		p.from.noteSettled(tally.event)
	}
}

// finishMissing finishes those of the inputs whose rows are not locked, and returns the
// others.
func (p *pipe[In, Out]) finishMissing(missing []*lease, tally *settleTally) (locked map[*lease]bool) {
	s := p.from.settler
	pause := retries()
	for {
		began := time.Now()
		seen, err := p.from.queue.look(s.abandoned, p.sessions, s.timeout, missing)
		if err == nil {
			locked = map[*lease]bool{}
			for _, l := range missing {
				if f := l.fate(seen.of(l.item)); f == fateLocked {
					locked[l] = true
				} else {
					s.finishMissing(l, f, tally)
				}
			}
			return locked
		}
		class := classify(p.from.queue.dialect, err)
		broken := class == sqlbatch.NoSchema || class == sqlbatch.Permanent
		if broken || s.abandoned.Err() != nil {
			for _, l := range missing {
				p.giveUpLease(l, err)
			}
			if broken {
				p.from.fail(p.from.queue.fail("pipe", err))
			}
			return nil
		}
		if pause.outage(class, began) {
			p.from.health.failed(began, err)
		}
		sleep(s.abandoned, pause.after(class))
	}
}

func (p *pipe[In, Out]) giveUp(group []piped[Out], err error) {
	for i := range group {
		p.giveUpLease(group[i].in, err)
	}
}

func (p *pipe[In, Out]) giveUpLease(l *lease, err error) {
	l.finish(&OpError{Op: "pipe", Queue: p.from.queue.name, ID: l.item.ID, Unknown: l.unknown, Err: err})
}
