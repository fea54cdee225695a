package settle

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Table has the statements of settles: see table.Table.
type Table interface {
	Build(skipLocked bool) sqlbatch.Queue
	AckStatement(sql sqlbatch.Queue, items []sqlbatch.Item) sqlbatch.Statement
	// IsLast reports that a nack after so many failed attempts dead-letters.
	IsLast(failures int) bool
	// Items returns the items whose rows a statement has changed. left means that the driver might still use its
	// arguments.
	Items(ctx context.Context, st sqlbatch.Statement, into []sqlbatch.Item) (changed []sqlbatch.Item, left bool,
		err error)
	Look(ctx context.Context, timeout time.Duration, ids [][16]byte) (table.Seen, error)
	// Replace acks, in one transaction, the items that are still held, calls store with them, and commits.
	Replace(ctx context.Context, items []sqlbatch.Item, skipLocked bool,
		store func(tx *sql.Tx, held []sqlbatch.Item) error) error
}

// Shared is what the Settler and the Extender of a consumer have in common, each with sessions of its own in Table.
type Shared struct {
	lease.Times
	Table    Table
	Traits   sqlbatch.Traits
	Classify func(error) sqlbatch.Class
	Health   batch.Health
}

// Config configures a Settler.
type Config struct {
	Shared
	Owner
	Linger time.Duration // of a settle
	// How many settles may wait before Add blocks; with more than half of them it is backlogged
	Room int
	// Isolated is called with the number of isolated settles when it changes.
	Isolated func(items int, err error)
}

func (c *Config) loop() batch.Loop {
	return batch.Loop{Health: c.Health, Classify: c.Classify, Waited: table.Unconnected, Timeout: c.TryTimeout()}
}

// Owner is the consumer of a Settler.
type Owner interface {
	// Awaited reports that other messages wait for a settle.
	Awaited(*lease.Lease) bool
	// Known is called for each settle whose outcome is known, before any caller gets it.
	Known(l *lease.Lease, err error)
	// Stored is called for each batch of settles, after their outcomes were published.
	Stored(began time.Time, t Tally, leases []*lease.Lease)
	// Broken is called with a permanent error.
	Broken(op string, err error)
}

// outcome is the outcome of a settle.
type outcome = batch.Outcome[*lease.Lease]

// Tally counts the outcomes of a batch of settles.
type Tally struct {
	Acked, Nacked, Released, Dead int // in the database
	Lost                          int // settled after the lease had ended
}

// Add adds o.
func (t *Tally) Add(o Tally) {
	t.Acked += o.Acked
	t.Nacked += o.Nacked
	t.Released += o.Released
	t.Dead += o.Dead
	t.Lost += o.Lost
}

// Settler stores settles: leases in state Settling are added to its writer, which batches them, repeats failed
// statements and isolates settles that fail alone. The kind of an item is its lease.Op, so each statement settles in
// one way.
//
// Each worker has its own session. In normal operation one worker is enough, and the other one waits, so that batches
// grow with the time that a statement takes.
//
// A statement returns the (id, fence) of every row that it changed. The Settler looks up the rows that it did not
// return before it treats a lease as lost: such a row is gone, leased by another consumer, or locked at the moment.
type Settler struct {
	cfg       Config
	writer    *batch.Writer[*lease.Lease]
	abandoned context.Context // of Run
	scratch   sync.Pool       // of *scratch
}

// Workers is how many batches of a Settler may be written at the same time: one, and another that continues if the
// first hangs.
const Workers = 2

// Linger is how long a settle waits for others to join its statement: a small part of a lease.
func Linger(leaseFor time.Duration) time.Duration { return min(5*time.Millisecond, leaseFor/10) }

// New returns a Settler that stores nothing before Run. abandoned ends when its owner gives up unstored settles.
func New(cfg Config, abandoned context.Context) *Settler {
	s := &Settler{cfg: cfg, abandoned: abandoned}
	s.scratch.New = func() any { return new(scratch) }
	workers := Workers
	if cfg.Traits.OneWriter {
		workers = 1 // more workers would share one session
	}
	s.writer = batch.New(batch.Config[*lease.Lease]{
		Full: []int{
			lease.Ack: cfg.Traits.AckItems, lease.Nack: cfg.Traits.NackItems, lease.Snooze: cfg.Traits.NackItems,
			lease.Release: cfg.Traits.AckItems, lease.Dead: cfg.Traits.DeadLetterItems,
		},
		Linger: cfg.Linger, Capacity: cfg.Room, Moment: batch.Healthy, Workers: workers,
		Loop: cfg.loop(), Isolated: cfg.Isolated,
		Write: s.write, Absent: s.absent, Done: s.done,
	})
	return s
}

// Run stores settles until the writer is closed and each has an outcome, or the owner gives up.
func (s *Settler) Run() { s.writer.Run(s.abandoned) }

// Add adds a lease in state Settling when there is room. It returns batch.ErrClosed after Close, or the cause of ctx's
// end.
func (s *Settler) Add(ctx context.Context, l *lease.Lease) error {
	s.prepare(l)
	return s.writer.Add(ctx, l, s.urgency(l))
}

// AddAll adds leases without waiting for room: their owner bounds them.
func (s *Settler) AddAll(leases ...*lease.Lease) {
	urgency := batch.Lazy
	for _, l := range leases {
		s.prepare(l)
		urgency = max(urgency, s.urgency(l))
	}
	if err := s.writer.AddAll(len(leases), func(i int) *lease.Lease { return leases[i] }, urgency); err != nil {
		lease.Finish(leases, slices.Repeat([]error{err}, len(leases)))
	}
}

// prepare decides whether a nack dead-letters the message.
func (s *Settler) prepare(l *lease.Lease) {
	if l.Op == lease.Nack && s.cfg.Table.IsLast(l.Failures()) {
		l.Op = lease.Dead
		d := l.Rare.Write()
		d.Cause = cmp.Or(d.Cause, sqlbatch.CauseExhausted)
	}
	l.Kind = uint8(l.Op)
}

// Drain stores later settles without lingering, and Expedite the waiting ones. Close makes Run return when each settle
// has its outcome. Flush waits until each settle that was added has its outcome.
func (s *Settler) Drain()                          { s.writer.Drain() }
func (s *Settler) Expedite()                       { s.writer.Expedite() }
func (s *Settler) Close()                          { s.writer.Close() }
func (s *Settler) Flush(ctx context.Context) error { return s.writer.Flush(ctx) }
func (s *Settler) Stats() batch.Stats              { return s.writer.Stats() }

// Backlogged reports that so many settles wait that claims are to wait as well.
func (s *Settler) Backlogged() bool { return s.writer.Stats().Waiting > s.cfg.Room/2 }

// urgency returns how soon a settle is to be stored.
func (s *Settler) urgency(l *lease.Lease) batch.Urgency {
	switch {
	case l.Period.Deadline()-base.Now() < 2*s.cfg.Linger: // too late for an extension
		return batch.Now
	case l.Awaited(), s.cfg.Awaited(l):
		return batch.Awaited
	}
	return batch.Lazy
}

// scratch has the reusable slices of one statement.
type scratch struct {
	items       []sqlbatch.Item
	nacks       []sqlbatch.NackItem
	deadLetters []sqlbatch.DeadLetterItem
	releases    []sqlbatch.ReleaseItem
	changed     []sqlbatch.Item
}

// write settles leases, all in one way, and returns the leases whose (id, fence) the database returned. They are first
// in leases afterwards.
func (s *Settler) write(ctx context.Context, leases []*lease.Lease, skipLocked bool) (written []*lease.Lease,
	err error) {
	s.gainTime(ctx, leases)
	slices.SortFunc(leases, func(a, b *lease.Lease) int { return table.CompareItems(a.Item, b.Item) })
	x := s.scratch.Get().(*scratch)
	changed, left, err := s.cfg.Table.Items(ctx, x.statement(s.cfg.Table, leases, skipLocked), x.changed[:0])
	if left {
		return nil, err // the driver still uses the scratch
	}
	x.changed = changed
	defer s.scratch.Put(x)
	if err != nil {
		return nil, err
	}
	return front(leases, changed, itemOf), nil
}

func itemOf(l *lease.Lease) sqlbatch.Item { return l.Item }

// front moves the values whose items were changed to the front, and returns them. values are in the order of
// table.CompareItems. An item without values stands for all: see sqlbatch.Queue.Ack.
func front[V any](values []V, changed []sqlbatch.Item, item func(V) sqlbatch.Item) []V {
	if len(changed) == 1 && changed[0] == (sqlbatch.Item{}) {
		return values
	}
	if !slices.IsSortedFunc(changed, table.CompareItems) {
		slices.SortFunc(changed, table.CompareItems)
	}
	n := 0
	for i, v := range values {
		it := item(v)
		for len(changed) > 0 && table.CompareItems(changed[0], it) < 0 {
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == it {
			values[i], values[n] = values[n], v
			n++
		}
	}
	return values[:n]
}

// gainTime makes a lease last for a statement that has more time than usual, and as long again after it: nothing can
// extend the lease of a row that a settle has locked. It ignores errors, because the statement gets the same error.
func (s *Settler) gainTime(ctx context.Context, leases []*lease.Lease) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	if len(leases) > 1 || left <= s.cfg.TryTimeout() {
		return
	}
	within, cancel := context.WithTimeout(ctx, s.cfg.TryTimeout())
	defer cancel()
	_, _ = leases[0].Home.Owner.Extend(within, leases[0], 2*left)
}

// fingerprint returns the fingerprint of the error of a dead message, or 0 if the end is not an error.
func fingerprint(d *lease.Details) int64 {
	if d.Cause == sqlbatch.CauseExpired || d.Cause == sqlbatch.CauseKilled {
		return 0
	}
	return base.Fingerprint(d.Text[:min(len(d.Text), sqlbatch.MaxError)]) // of the stored text
}

// statement returns the statement that settles leases, all in one way.
func (x *scratch) statement(t Table, leases []*lease.Lease, skipLocked bool) sqlbatch.Statement {
	sql := t.Build(skipLocked)
	switch op := leases[0].Op; op {
	case lease.Nack, lease.Snooze:
		x.nacks = x.nacks[:0]
		for _, l := range leases {
			d := l.Rare.Read()
			x.nacks = append(x.nacks, sqlbatch.NackItem{Item: l.Item, Delivery: l.Delivery, Delay: d.Delay,
				Took: d.Took, Error: d.Text})
		}
		if op == lease.Snooze {
			return sql.Snooze(x.nacks)
		}
		return sql.Nack(x.nacks)
	case lease.Dead:
		x.deadLetters = x.deadLetters[:0]
		for _, l := range leases {
			d := l.Rare.Read()
			x.deadLetters = append(x.deadLetters, sqlbatch.DeadLetterItem{Item: l.Item, Delivery: l.Delivery,
				Took: d.Took, Error: d.Text, Cause: d.Cause, Fingerprint: fingerprint(d), Uncounted: d.Uncounted})
		}
		return sql.DeadLetter(x.deadLetters)
	case lease.Release:
		x.releases = x.releases[:0]
		for _, l := range leases {
			x.releases = append(x.releases, sqlbatch.ReleaseItem{Item: l.Item, Delivery: l.Delivery})
		}
		return sql.Release(x.releases)
	default:
		x.items = x.items[:0]
		for _, l := range leases {
			x.items = append(x.items, l.Item)
		}
		return t.AckStatement(sql, x.items)
	}
}

// absent looks up settles that their statement did not return.
func (s *Settler) absent(ctx context.Context, leases []*lease.Lease) ([]outcome, error) {
	return verdicts(ctx, s, leases, leases)
}

// verdicts returns the outcomes of items by the rows of their leases. It leaves out items whose rows are locked.
func verdicts[I batch.Item](ctx context.Context, s *Settler, items []I,
	leases []*lease.Lease) (outcomes []batch.Outcome[I], err error) {
	seen, err := s.cfg.Table.Look(ctx, min(s.cfg.TryTimeout(), s.cfg.SpareTimeout()), lease.IDs(leases))
	if err != nil {
		return nil, err
	}
	for i, l := range leases {
		if v := l.Verdict(l.Row(seen)); v != lease.VerdictLocked {
			outcomes = append(outcomes, batch.Outcome[I]{Item: items[i], Err: v.Err(),
				Unknown: v == lease.VerdictHidden})
		}
	}
	return outcomes, nil
}

// done publishes the outcomes of leases. A Pipe calls it as well.
func (s *Settler) done(began time.Time, outcomes []outcome) {
	var t Tally
	leases, errs := make([]*lease.Lease, len(outcomes)), make([]error, len(outcomes))
	for i, o := range outcomes {
		leases[i], errs[i] = o.Item, s.outcome(o, &t)
		s.cfg.Known(o.Item, errs[i])
	}
	lease.Finish(leases, errs)
	s.cfg.Stored(began, t, leases)
}

// ErrLocked is the error of an operation that waited as long as it may for a locked row.
var ErrLocked = errors.New("another transaction has locked the message's row")

// outcome counts a settle, and returns its outcome.
func (s *Settler) outcome(o outcome, t *Tally) error {
	switch o.Err {
	case nil:
		*[...]*int{&t.Acked, &t.Nacked, &t.Released, &t.Released, &t.Dead}[o.Item.Op]++
		return nil
	case lease.ErrSettled: // the caller's transaction has acked it, which was counted
		return o.Err
	case lease.ErrLost:
		t.Lost++
		return o.Err
	}
	unknown := o.Unknown || o.Item.Rare.Read().MaybeApplied
	failed := &lease.FailedError{Op: o.Item.Op.String(), Unknown: unknown, Err: o.Err}
	switch {
	case o.Err == lease.ErrHidden:
	case s.abandoned.Err() != nil:
		if o.Item.Locked > 0 {
			failed.Err = ErrLocked
		}
	case table.IsPermanent(s.cfg.Classify(o.Err)):
		s.cfg.Broken(failed.Op, o.Err)
	default:
		failed.Refused = true
	}
	return failed
}
