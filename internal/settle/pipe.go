package settle

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// outputBytes is the maximum size of the outputs of a transaction, unless one input has them all.
const outputBytes = 4 << 20

// Target is the queue that gets the outputs of a Pipe.
type Target interface {
	// Store stores outputs in a transaction. keyed means that an ID or a key might be in the queue already.
	Store(ctx context.Context, tx *sql.Tx, rows []sqlbatch.Row, keyed bool) error
	// Stored is called after the outputs of inputs were stored, or might have been; messages counts those that were for
	// certain. more means that others follow.
	Stored(inputs []*Input, messages int, more bool, took time.Duration)
	// Unstored is called before an input is nacked whose outputs were not stored. It sets the Delay of the lease.
	Unstored(in *Input, err error)
}

// Input is a lease whose handler has returned, with its outputs.
type Input struct {
	batch.Place // its Size is the total size of the outputs

	In    *lease.Lease
	Of    any // the delivery of In, for the Target
	Rows  []sqlbatch.Row
	Keyed bool // a row has a key, or an ID that the caller chose

	// Used by the writer.
	alone time.Time // start of the first transaction of this input alone that timed out or was undone
	late  error     // of the last one, if the outputs are given up
}

// Pipe acks leases and stores their outputs, in one transaction per batch. It has a writer and sessions of its own, so
// that the other settles of the consumer do not wait for the queue of the outputs.
//
//	a transaction fails                         it is repeated; an input that fails alone is isolated
//	an input's row is locked                    it is stored later, and no other input waits for it
//	outputs are refused each time               the input is dead-lettered
//	outputs are not stored within the timeout   the input is nacked, as if its handler had failed
//	unknown outcome, and the row is gone        the input counts as acked
type Pipe struct {
	settler *Settler
	table   Table
	to      Target
	writer  *batch.Writer[*Input]
}

// Pipe returns a Pipe of the leases of a Settler. t has its sessions. isolated is called as Config.Isolated. Outputs
// that fail alone are tried again for StatementTimeout.
func (s *Settler) Pipe(t Table, to Target, isolated func(items int, err error)) *Pipe {
	p := &Pipe{settler: s, table: t, to: to}
	most := s.cfg.Traits.AckItems
	p.writer = batch.New(batch.Config[*Input]{
		Full: []int{most}, Cut: fit, Capacity: 2 * most, Linger: s.cfg.Linger, Workers: 1,
		Longest: s.cfg.StatementTimeout,
		Loop:    s.cfg.loop(), Isolated: isolated,
		Write: p.write, Absent: p.absent, Done: p.done,
	})
	return p
}

// Run stores until the owner of the Settler has ended, or gives up.
func (p *Pipe) Run() { p.writer.Run(p.settler.abandoned) }

// Add adds an input in state Settling when there is room.
func (p *Pipe) Add(in *Input) {
	if err := p.writer.Add(context.Background(), in, batch.Awaited); err != nil { // the consumer gave up
		lease.Finish([]*lease.Lease{in.In}, []error{err})
	}
}

// fit returns how many of the first inputs fit one transaction.
func fit(inputs []*Input) int {
	size := 0
	for i, in := range inputs {
		if size += in.Size; i > 0 && size > outputBytes {
			return i
		}
	}
	return len(inputs)
}

func (in *Input) item() sqlbatch.Item { return in.In.Item }

// write acks inputs and stores their outputs, in one transaction, and returns the inputs that it acked. One that is
// alone and given up counts as written: see done.
func (p *Pipe) write(ctx context.Context, inputs []*Input, skipLocked bool) (written []*Input, err error) {
	began := time.Now()
	slices.SortFunc(inputs, func(a, b *Input) int { return table.CompareItems(a.item(), b.item()) })
	items := make([]sqlbatch.Item, len(inputs))
	for i, in := range inputs {
		items[i] = in.item()
	}
	err = p.table.Replace(ctx, items, skipLocked, func(tx *sql.Tx, held []sqlbatch.Item) error {
		written = front(slices.Clone(inputs), held, (*Input).item) // there might be a second transaction
		var rows []sqlbatch.Row
		keyed := false
		for _, in := range written {
			rows, keyed = append(rows, in.Rows...), keyed || in.Keyed
		}
		return p.to.Store(ctx, tx, rows, keyed)
	})
	switch {
	case err == nil:
		return written, nil
	case len(inputs) == 1 && p.late(ctx, inputs[0], began, err):
		return inputs, err
	}
	return nil, err
}

// late gives the outputs of an input up if its transactions have failed for too long because the database undid them,
// or did not finish them in time. It reports whether it did.
func (p *Pipe) late(ctx context.Context, in *Input, began time.Time, err error) bool {
	timedOut := ctx.Err() == context.DeadlineExceeded && !table.Unconnected(err)
	if !timedOut && p.settler.cfg.Classify(err) != sqlbatch.RolledBack {
		return false
	}
	if in.alone.IsZero() {
		in.alone = began
	}
	if time.Since(in.alone) >= p.settler.cfg.StatementTimeout {
		in.late = err
	}
	return in.late != nil
}

// absent looks up inputs that a transaction did not ack.
func (p *Pipe) absent(ctx context.Context, inputs []*Input) ([]batch.Outcome[*Input], error) {
	leases := make([]*lease.Lease, len(inputs))
	for i, in := range inputs {
		if in.Unknown {
			in.In.Rare.Write().MaybeApplied = true
		}
		leases[i] = in.In
	}
	return verdicts(ctx, p.settler, inputs, leases)
}

// done finishes inputs, or settles those whose outputs cannot be stored in another way.
func (p *Pipe) done(began time.Time, outcomes []batch.Outcome[*Input]) {
	messages := 0
	var stored []*Input
	settled := make([]outcome, 0, len(outcomes))
	for _, o := range outcomes {
		in := o.Item
		if o.Err == nil {
			o.Err = in.late
		}
		switch o.Err {
		case nil:
			messages += len(in.Rows)
		case lease.ErrSettled, lease.ErrLost, lease.ErrHidden:
		default:
			if p.instead(in, o.Err) {
				continue
			}
		}
		if len(in.Rows) > 0 && (o.Err == nil || o.Unknown) {
			stored = append(stored, in)
		}
		settled = append(settled, outcome{Item: in.In, Err: o.Err, Unknown: o.Unknown})
	}
	if len(stored) > 0 {
		p.to.Stored(stored, messages, p.writer.Stats().Open > len(outcomes), time.Since(began))
	}
	p.settler.done(began, settled)
}

// instead dead-letters or nacks an input whose outputs cannot be stored, and reports whether it did. It does not if the
// consumer has to end.
func (p *Pipe) instead(in *Input, err error) bool {
	l, s := in.In, p.settler
	if s.abandoned.Err() != nil {
		return false // absent might be reading the lease
	}
	class := s.cfg.Classify(err)
	d := l.Rare.Write()
	d.MaybeApplied = d.MaybeApplied || in.Unknown || class == sqlbatch.Unknown
	if table.IsPermanent(class) {
		s.cfg.Broken("pipe", err)
		return false
	}
	err = fmt.Errorf("%s%w", base.ReasonOutput, err)
	if l.Op = lease.Dead; class != sqlbatch.BadRow {
		l.Op = lease.Nack
		p.to.Unstored(in, err)
	}
	d.Text, d.Cause = err.Error(), sqlbatch.CauseOutput
	s.AddAll(l)
	return true
}
