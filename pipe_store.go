package chanq

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The storing side of a Pipe: its writer replaces inputs by outputs, in one transaction at a time, and isolated inputs in
// transactions of their own.

// newWriter makes the writer. Its groups have as many inputs as one statement acks, or 4 MiB or so of outputs.
func (p *pipe[Out]) newWriter() *batch.Writer[*piped[Out]] {
	most, cfg := p.from.queue.dialect.Traits().AckItems, p.from.cfg
	return batch.New(batch.Config[*piped[Out]]{
		Full: []int{most}, Cut: p.fit, Capacity: 2 * most, Linger: cfg.linger(), AwaitedLinger: cfg.linger(),
		Longest: cfg.StatementTimeout, Workers: 1,
		Loop:     batch.Loop{Health: p.from.health, Classify: p.from.queue.classify, Unknown: session.Fell, Waited: session.Unconnected, Timeout: cfg.tryTimeout()},
		Observer: batch.Observer{Isolated: p.isolated.Set},
		Write:    p.write, Absent: p.absent, Done: p.done,
	})
}

// store runs the writer. It returns when the workers have ended, and every input has its outcome.
func (p *pipe[Out]) store() {
	p.sessions.connect(p.from.abandoned, p.from.cfg.StatementTimeout)
	p.writer.Run(p.from.abandoned)
	p.isolated.Close()
	p.to.queue.debouncer.Flush() // for what was stored before the last group failed
	p.sessions.close()
}

// fit is how many of the first inputs fit one transaction.
func (p *pipe[Out]) fit(items []*piped[Out]) int {
	size := 0
	for i, item := range items {
		if size += item.Size; i > 0 && size > p.to.cfg.BatchBytes {
			return i
		}
	}
	return len(items)
}

// write replaces inputs by outputs in one transaction, and returns those inputs that it acked. An input that is not replaced
// within StatementTimeout, although it is alone, is nacked, and counts as written.
func (p *pipe[Out]) write(ctx context.Context, items []*piped[Out], skipLocked bool) (written []*piped[Out], err error) {
	began := time.Now()
	slices.SortFunc(items, func(a, b *piped[Out]) int { return table.CompareItems(a.in.Item, b.in.Item) })
	acks := p.from.queue.sql.InOwnTx()
	if skipLocked {
		acks = p.from.queue.sql.InTx().SkipLocked()
	}
	var held []sqlbatch.Item
	if err := p.sessions.InTx(ctx, func(tx *sql.Tx) (err error) {
		held, err = p.replace(ctx, tx, acks, items)
		return err
	}); err != nil {
		if len(items) == 1 && p.late(ctx, items[0], began, err) {
			return items, err
		}
		return nil, err
	}
	for _, item := range items {
		if _, ok := slices.BinarySearchFunc(held, item.in.Item, table.CompareItems); ok {
			written = append(written, item)
		}
	}
	return written, nil
}

// late hands an input to the settler, to be nacked, if its transactions have failed for StatementTimeout because the database
// undid them, or did not finish them in time. It reports whether it did.
func (p *pipe[Out]) late(ctx context.Context, item *piped[Out], began time.Time, err error) bool {
	ranOut := ctx.Err() == context.DeadlineExceeded && !session.Unconnected(err)
	class := p.from.queue.classify(err)
	if !ranOut && class != sqlbatch.RolledBack {
		return false
	}
	if item.alone.IsZero() {
		item.alone = began
	}
	if time.Since(item.alone) < p.from.cfg.StatementTimeout {
		return false
	}
	item.handed = true
	item.in.MaybeApplied = item.in.MaybeApplied || item.Unknown || class == sqlbatch.Unknown
	p.nack(item.in, fmt.Errorf("%s%w", reasonOutput, err))
	return true
}

// nack gives an input back that cannot be replaced.
func (p *pipe[Out]) nack(l *lease.Lease, err error) {
	call(p.from.queue.cfg.Hooks.Failed, FailedEvent{Queue: p.from.queue.label, ID: l.Item.ID, Attempt: l.Attempt, Err: err})
	l.Delay = nackDelay(p.from.backoff(l.Failures()))
	p.handBack(l, lease.Nack, err)
}

// handBack hands an input to the settler.
func (p *pipe[Out]) handBack(l *lease.Lease, op lease.Op, err error) {
	l.Op, l.Text = op, err.Error()
	p.from.settler.AddAll(l)
}

// replace acks the inputs in tx, but for those that somebody has locked, and stores
// the outputs of those that it acked.
func (p *pipe[Out]) replace(ctx context.Context, tx *sql.Tx, acks sqlbatch.Queue, group []*piped[Out]) (held []sqlbatch.Item, err error) {
	items := make([]sqlbatch.Item, len(group))
	for i := range group {
		items[i] = group[i].in.Item
	}
	if err := session.RunTx(ctx, tx, p.from.queue.table.AckStatement(acks, items), session.CollectItems(&held)); err != nil {
		return nil, err
	}
	slices.SortFunc(held, table.CompareItems)
	var rows []sqlbatch.Row
	keyed := false
	for i := range group {
		if _, ok := slices.BinarySearchFunc(held, group[i].in.Item, table.CompareItems); ok {
			rows = append(rows, group[i].rows...)
			keyed = keyed || group[i].keys
		}
	}
	inserts := p.to.queue.inserts(p.to.queue.table.InTx(tx))
	for len(rows) > 0 {
		chunk := rows[:send.Cut(rows, p.to.cfg.BatchRows, p.to.cfg.BatchBytes, func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, keyed })]
		if err := inserts.Store(ctx, chunk, make([]send.Receipt, len(chunk)), keyed); err != nil {
			return nil, err
		}
		rows = rows[len(chunk):]
	}
	return held, nil
}

// absent looks for inputs that a transaction did not ack. It leaves out those whose rows are locked.
func (p *pipe[Out]) absent(ctx context.Context, items []*piped[Out]) (outcomes []batch.Outcome[*piped[Out]], err error) {
	leases := make([]*lease.Lease, len(items))
	for i, item := range items {
		leases[i] = item.in
	}
	seen, err := p.from.queue.on(p.sessions).Look(ctx, p.from.cfg.tryTimeout(), lease.IDs(leases))
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		item.in.MaybeApplied = item.in.MaybeApplied || item.Unknown
		if v := item.in.Verdict(item.in.Row(seen)); v != lease.VerdictLocked {
			outcomes = append(outcomes, batch.Outcome[*piped[Out]]{Item: item, Err: v.Err(), Unknown: v == lease.VerdictHidden})
		}
	}
	return outcomes, nil
}

// done finishes inputs.
func (p *pipe[Out]) done(began time.Time, outcomes []batch.Outcome[*piped[Out]]) {
	sent, unknown := 0, false
	var slots notify.Slots
	names := p.to.queue.debouncer.Names()
	settled := make([]batch.Outcome[*lease.Lease], 0, len(outcomes))
	for _, o := range outcomes {
		if o.Item.handed {
			continue
		}
		switch o.Err {
		case nil:
			sent += len(o.Item.rows)
		case ErrSettled, ErrLeaseLost, lease.ErrHidden:
		default:
			if o.Err = p.failed(o); o.Err == nil {
				continue
			}
		}
		settled = append(settled, batch.Outcome[*lease.Lease]{Item: o.Item.in, Err: o.Err, Unknown: o.Unknown})
		unknown = unknown || o.Unknown
		if names && (o.Err == nil || o.Unknown) {
			for i := range o.Item.rows {
				slots.Add(o.Item.rows[i].Slot)
			}
		}
	}
	if sent > 0 || unknown {
		p.to.queue.notify(max(1, sent), slots, p.writer.Stats().Open > len(outcomes))
	}
	if sent > 0 {
		p.to.queue.recorder.sent.Add(int64(sent))
		call(p.to.queue.cfg.Hooks.Sent, SentEvent{Queue: p.to.queue.label, Messages: sent, Took: time.Since(began)})
	}
	if len(settled) > 0 {
		p.from.settler.Done(began, settled)
	}
}

// failed deals with an input that cannot be replaced. It returns its outcome, or nil if the settler has it.
func (p *pipe[Out]) failed(o batch.Outcome[*piped[Out]]) error {
	l, class := o.Item.in, p.from.queue.classify(o.Err)
	switch {
	case p.from.abandoned.Err() != nil, table.IsPermanent(class):
		if p.from.abandoned.Err() == nil {
			p.from.broken(p.from.queue.fail("pipe", o.Err))
		}
		return &lease.FailedError{Op: "pipe", Unknown: o.Unknown || l.MaybeApplied, Err: o.Err}
	case class == sqlbatch.BadRow:
		p.handBack(l, lease.Dead, fmt.Errorf("%s%w", reasonOutput, o.Err))
	default:
		p.nack(l, fmt.Errorf("%s%w", reasonOutput, o.Err))
	}
	return nil
}
