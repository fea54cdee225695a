package pipe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Store has the transactions of a Pipe: see Tables.
type Store interface {
	// Replace acks, in one transaction, the inputs that are still held, calls outputs with them, and commits. store
	// stores rows in the transaction; keyed means that an ID or a key might be in the queue already.
	Replace(ctx context.Context, inputs []sqlbatch.Item, skipLocked bool,
		outputs func(held []sqlbatch.Item, store func(rows []sqlbatch.Row, keyed bool) error) error) error
	// Look looks up which inputs exist.
	Look(ctx context.Context, timeout time.Duration, ids [][16]byte) (table.Seen, error)
	// Connect opens a connection before it is needed, if there are few.
	Connect(ctx context.Context, timeout time.Duration)
	Close()
}

// Consumer owns the inputs: consume.Consumer.
type Consumer interface {
	// Abandoned ends when the consumer drops what is not stored in the database yet.
	Abandoned() context.Context
	Take()
	SettleAll(...*lease.Lease)
	Finished(began time.Time, outcomes []batch.Outcome[*lease.Lease])
	Broken(op string, err error)
}

// Config configures a Pipe. Its functions are called with no lock held.
type Config struct {
	Store                    Store
	From                     Consumer
	Inputs                   int // maximum number of inputs of a transaction
	BatchRows, BatchBytes    int // of outputs
	Linger, Timeout, Longest time.Duration
	Classify                 func(error) sqlbatch.Class
	Health                   batch.Health
	Isolated                 *base.Isolated
	Reason                   string // prefix of the last errors of inputs that cannot be replaced
	// Failed is called for an input that is nacked because its outputs were not stored in time. It returns the delay
	// until the input is due again.
	Failed func(item *Item, err error) (delay time.Duration)
	// Slots reports that Sent wants the slots of the outputs.
	Slots bool
	// Sent is called after outputs were stored; messages is 0 if they might have been. more means that others follow.
	Sent func(messages int, slots notify.Slots, more bool, took time.Duration)
}

// Item is an input that was handled, with its outputs.
type Item struct {
	batch.Place // its Size is the total size of the outputs

	In    *lease.Lease
	Of    any // the delivery of In, for the caller that made the Pipe
	Rows  []sqlbatch.Row
	one   [1]sqlbatch.Row // where Rows begins: most items have one output
	Keyed bool            // an output has a key, or an ID that the caller chose

	// Start of the first transaction of this input alone that timed out or was undone; used by the writer
	alone  time.Time
	handed bool // it was passed to the consumer after Longest
}

// Begin makes a zero Item an input without outputs. The Item must not be copied afterwards.
func (i *Item) Begin(in *lease.Lease, of any) { i.In, i.Of, i.Rows = in, of, i.one[:0] }

// Append adds an output. given means that the caller chose its ID.
func (i *Item) Append(row sqlbatch.Row, given bool) {
	i.Rows = append(i.Rows, row)
	i.Size += len(row.Body) + len(row.Headers)
	i.Keyed = i.Keyed || given || row.Key != ""
}

// Pipe replaces inputs by outputs.
type Pipe struct {
	cfg    Config
	writer *batch.Writer[*Item]
}

// New returns a Pipe. Run is to be called next.
func New(cfg Config) *Pipe {
	p := &Pipe{cfg: cfg}
	p.writer = batch.New(batch.Config[*Item]{
		Full: []int{cfg.Inputs}, Cut: p.fit, Capacity: 2 * cfg.Inputs, Linger: cfg.Linger,
		Longest: cfg.Longest, Workers: 1,
		Loop: batch.Loop{Health: cfg.Health, Classify: cfg.Classify, Waited: table.Unconnected,
			Timeout: cfg.Timeout},
		Isolated: cfg.Isolated.Set,
		Write:    p.write, Absent: p.absent, Done: p.done,
	})
	return p
}

// Run stores until Close was called and every input has its outcome.
func (p *Pipe) Run() {
	p.cfg.Store.Connect(p.cfg.From.Abandoned(), p.cfg.Longest)
	p.writer.Run(p.cfg.From.Abandoned())
	p.cfg.Isolated.Close()
	p.cfg.Store.Close()
}

// Drain disables lingering.
func (p *Pipe) Drain() { p.writer.Drain() }

// Close must be called after the last Add.
func (p *Pipe) Close() { p.writer.Close() }

// Add adds a handled input. From here on it is being settled: nothing else may settle it. Add waits for room. It
// returns false if the handler settled the input, or the input is lost.
func (p *Pipe) Add(item *Item) bool {
	if !item.In.Take(lease.Ack) {
		return false
	}
	p.cfg.From.Take()
	if p.writer.Add(context.Background(), item, batch.Awaited) != nil { // the consumer gave up
		lease.Finish([]*lease.Lease{item.In}, []error{&lease.FailedError{Op: "pipe", Err: batch.ErrClosed}})
	}
	return true
}

// fit returns how many of the first inputs fit one transaction.
func (p *Pipe) fit(items []*Item) int {
	size := 0
	for i, item := range items {
		if size += item.Size; i > 0 && size > p.cfg.BatchBytes {
			return i
		}
	}
	return len(items)
}

// write replaces inputs by outputs in one transaction, and returns the inputs that it acked. An input that is alone and
// not replaced within Longest is nacked, and counts as written.
func (p *Pipe) write(ctx context.Context, items []*Item, skipLocked bool) (written []*Item, err error) {
	began := time.Now()
	slices.SortFunc(items, func(a, b *Item) int { return table.CompareItems(a.In.Item, b.In.Item) })
	inputs := make([]sqlbatch.Item, len(items))
	for i, item := range items {
		inputs[i] = item.In.Item
	}
	err = p.cfg.Store.Replace(ctx, inputs, skipLocked,
		func(held []sqlbatch.Item, store func([]sqlbatch.Row, bool) error) error {
			written = nil
			var rows []sqlbatch.Row
			keyed := false
			slices.SortFunc(held, table.CompareItems)
			for _, item := range items {
				if _, ok := slices.BinarySearchFunc(held, item.In.Item, table.CompareItems); ok {
					written, rows, keyed = append(written, item), append(rows, item.Rows...), keyed || item.Keyed
				}
			}
			return p.outputs(rows, keyed, store)
		})
	switch {
	case err == nil:
		return written, nil
	case len(items) == 1 && p.late(ctx, items[0], began, err):
		return items, err
	}
	return nil, err
}

// outputs stores rows in statements.
func (p *Pipe) outputs(rows []sqlbatch.Row, keyed bool, store func([]sqlbatch.Row, bool) error) error {
	for len(rows) > 0 {
		n := send.Cut(rows, p.cfg.BatchRows, p.cfg.BatchBytes,
			func(r *sqlbatch.Row) (*sqlbatch.Row, bool) { return r, keyed })
		if err := store(rows[:n], keyed); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// late passes an input to the consumer, to be nacked, if its transactions have failed for Longest because the database
// undid them, or did not finish them in time. It reports whether it did.
func (p *Pipe) late(ctx context.Context, item *Item, began time.Time, err error) bool {
	timedOut := ctx.Err() == context.DeadlineExceeded && !table.Unconnected(err)
	class := p.cfg.Classify(err)
	if !timedOut && class != sqlbatch.RolledBack {
		return false
	}
	if item.alone.IsZero() {
		item.alone = began
	}
	if time.Since(item.alone) < p.cfg.Longest {
		return false
	}
	item.handed = true
	item.In.MaybeApplied = item.In.MaybeApplied || item.Unknown || class == sqlbatch.Unknown
	p.nack(item, err)
	return true
}

// nack releases an input that cannot be replaced, as a failed attempt.
func (p *Pipe) nack(item *Item, err error) {
	l := item.In
	err = p.unstorable(err)
	l.Op, l.Delay, l.Text, l.Cause = lease.Nack, p.cfg.Failed(item, err), err.Error(), sqlbatch.CauseOutput
	p.cfg.From.SettleAll(l)
}

// unstorable is the reason why an output cannot be stored.
func (p *Pipe) unstorable(err error) error { return fmt.Errorf("%s%w", p.cfg.Reason, err) }

// absent looks up inputs that a transaction did not ack. It leaves out inputs whose rows are locked.
func (p *Pipe) absent(ctx context.Context, items []*Item) (outcomes []batch.Outcome[*Item], err error) {
	leases := make([]*lease.Lease, len(items))
	for i, item := range items {
		leases[i] = item.In
	}
	seen, err := p.cfg.Store.Look(ctx, p.cfg.Timeout, lease.IDs(leases))
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		item.In.MaybeApplied = item.In.MaybeApplied || item.Unknown
		if v := item.In.Verdict(item.In.Row(seen)); v != lease.VerdictLocked {
			outcomes = append(outcomes, batch.Outcome[*Item]{Item: item, Err: v.Err(),
				Unknown: v == lease.VerdictHidden})
		}
	}
	return outcomes, nil
}

// done finishes inputs.
func (p *Pipe) done(began time.Time, outcomes []batch.Outcome[*Item]) {
	sent, maybe := 0, false
	var slots notify.Slots
	settled := make([]batch.Outcome[*lease.Lease], 0, len(outcomes))
	for _, o := range outcomes {
		if o.Item.handed {
			continue
		}
		switch o.Err {
		case nil:
			sent += len(o.Item.Rows)
		case lease.ErrSettled, lease.ErrLost, lease.ErrHidden:
		default:
			if o.Err = p.failed(o); o.Err == nil {
				continue
			}
		}
		settled = append(settled, batch.Outcome[*lease.Lease]{Item: o.Item.In, Err: o.Err, Unknown: o.Unknown})
		maybe = maybe || o.Unknown
		if p.cfg.Slots && (o.Err == nil || o.Unknown) {
			for i := range o.Item.Rows {
				slots.Add(o.Item.Rows[i].Slot)
			}
		}
	}
	if sent > 0 || maybe {
		p.cfg.Sent(sent, slots, p.writer.Stats().Open > len(outcomes), time.Since(began))
	}
	if len(settled) > 0 {
		p.cfg.From.Finished(began, settled)
	}
}

// failed handles an input that cannot be replaced. It returns its outcome, or nil if the consumer has it.
func (p *Pipe) failed(o batch.Outcome[*Item]) error {
	l, class := o.Item.In, p.cfg.Classify(o.Err)
	switch gaveUp := p.cfg.From.Abandoned().Err() != nil; {
	case gaveUp, table.IsPermanent(class):
		if !gaveUp {
			p.cfg.From.Broken("pipe", o.Err)
		}
		return &lease.FailedError{Op: "pipe", Unknown: o.Unknown || l.MaybeApplied, Err: o.Err}
	case class == sqlbatch.BadRow:
		l.Op, l.Text, l.Cause = lease.Dead, p.unstorable(o.Err).Error(), sqlbatch.CauseOutput
		p.cfg.From.SettleAll(l)
	default:
		p.nack(o.Item, o.Err)
	}
	return nil
}
