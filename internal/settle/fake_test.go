package settle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// classed is an error of a given class.
type classed struct{ sqlbatch.Class }

func (e classed) Error() string { return e.String() }

func classify(err error) sqlbatch.Class {
	var c classed
	if errors.As(err, &c) {
		return c.Class
	}
	return sqlbatch.Unknown
}

type health struct{}

func (health) Worked(time.Time)        {}
func (health) Failed(time.Time, error) {}

// fake is a table in memory, the owner of its leases, and a record of what was called.
type fake struct {
	t        testing.TB
	mu       sync.Mutex
	rows     map[[16]byte]int64 // fences
	locked   map[[16]byte]bool
	calls    []string
	fail     func(op string, ids [][16]byte) error // before a statement; nil: it works
	after    func(op string) error                 // after it was applied
	slow     map[[16]byte]time.Duration            // duration of a statement with that row
	settler  *settle.Settler
	extender *settle.Extender
	taken    atomic.Int64 // leases that readers have taken
	unread   atomic.Int64 // calls of Unread
	home     lease.Home
	ended    []*lease.Lease
	stored   []settle.Tally
	lost     []string
	broken   []string
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, rows: map[[16]byte]int64{}, locked: map[[16]byte]bool{}, slow: map[[16]byte]time.Duration{}}
	f.home = lease.Home{Owner: f, Parent: context.Background()}
	return f
}

var traits = sqlbatch.Traits{AckItems: 100, NackItems: 100, DeadLetterItems: 10}

func shared(t settle.Table, timeout time.Duration) settle.Shared {
	return settle.Shared{Table: t, Traits: traits, Classify: classify, Health: health{},
		Times: lease.Times{LeaseFor: leaseFor, MaxExtend: time.Hour, StatementTimeout: timeout}}
}

// start runs a settler, and returns a function that ends it.
func (f *fake) start(change func(*settle.Config)) (end func()) {
	cfg := settle.Config{
		Shared: shared(f, 30*time.Second), Owner: f, Linger: 10 * time.Millisecond, Room: 1000,
		Isolated: func(int, error) {},
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.settler = settle.New(cfg, ctx)
	var running sync.WaitGroup
	running.Go(f.settler.Run)
	end = sync.OnceFunc(func() { f.settler.Close(); running.Wait(); cancel() })
	f.t.Cleanup(func() { cancel(); end() }) // for a test that has failed
	return end
}

func (f *fake) IsLast(failures int) bool  { return failures >= 3 }
func (*fake) Awaited(*lease.Lease) bool   { return false }
func (f *fake) Known(*lease.Lease, error) { f.note("known") }

func (f *fake) Stored(_ time.Time, t settle.Tally, _ []*lease.Lease) {
	f.note("stored")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored = append(f.stored, t)
}

func (f *fake) Broken(op string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = append(f.broken, op)
}

// lease returns a lease of a message in the table.
func (f *fake) lease(n byte) *lease.Lease {
	l := &lease.Lease{Home: &f.home, Item: sqlbatch.Item{ID: [16]byte{n}, Fence: 7}, Attempt: 1}
	l.Period.Begin(base.Now()+time.Minute, base.Now()+time.Hour)
	f.mu.Lock()
	f.rows[l.Item.ID] = 7
	f.mu.Unlock()
	return l
}

func (f *fake) leases(n int) []*lease.Lease {
	all := make([]*lease.Lease, n)
	for i := range all {
		all[i] = f.lease(byte(i))
	}
	return all
}

func (f *fake) note(call string) {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	f.mu.Unlock()
}

func (f *fake) forget() {
	f.mu.Lock()
	f.calls = nil
	f.mu.Unlock()
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// noted returns the calls so far, with consecutive equal calls merged.
func (f *fake) noted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if len(out) == 0 || out[len(out)-1] != c {
			out = append(out, c)
		}
	}
	return strings.Join(out, " ")
}

// failing makes statements fail: before they run, or after they were applied.
func (f *fake) failing(fail func(op string, ids [][16]byte) error, after func(op string) error) {
	f.mu.Lock()
	f.fail, f.after = fail, after
	f.mu.Unlock()
}

// change removes rows, or gives them another fence, as a statement does.
func (f *fake) change(ctx context.Context, op string, items []sqlbatch.Item, removes,
	extends bool) ([]sqlbatch.Item, bool, error) {
	ids := make([][16]byte, len(items))
	for i, it := range items {
		ids[i] = it.ID
	}
	f.note(fmt.Sprintf("%s(%d)", op, len(items)))
	f.mu.Lock()
	fail, after := f.fail, f.after
	f.mu.Unlock()
	if fail != nil {
		if err := fail(op, ids); err != nil {
			return nil, false, err
		}
	}
	for _, id := range ids {
		select {
		case <-time.After(f.slow[id]):
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
	f.mu.Lock()
	var changed []sqlbatch.Item
	for _, it := range items {
		if f.rows[it.ID] != it.Fence || f.locked[it.ID] {
			continue
		}
		changed = append(changed, it)
		switch {
		case removes:
			delete(f.rows, it.ID)
		case !extends:
			f.rows[it.ID]++
		}
	}
	f.mu.Unlock()
	if after != nil {
		if err := after(op); err != nil {
			return nil, false, err
		}
	}
	return changed, false, nil
}

// statements are those of a fake: their texts are names, and their arguments are items.
type statements struct{ sqlbatch.Queue }

func named[I any](text string, list []I, item func(I) sqlbatch.Item) sqlbatch.Statement {
	st := sqlbatch.Statement{Text: text}
	for _, i := range list {
		st.Args = append(st.Args, item(i))
	}
	return st
}

func nacked(i sqlbatch.NackItem) sqlbatch.Item { return i.Item }

func (statements) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	return named("ack", items, func(i sqlbatch.Item) sqlbatch.Item { return i })
}

func (statements) Nack(items []sqlbatch.NackItem) sqlbatch.Statement {
	return named("nack", items, nacked)
}

func (statements) Snooze(items []sqlbatch.NackItem) sqlbatch.Statement {
	return named("snooze", items, nacked)
}

func (statements) Release(items []sqlbatch.ReleaseItem) sqlbatch.Statement {
	return named("release", items, func(i sqlbatch.ReleaseItem) sqlbatch.Item { return i.Item })
}

func (statements) DeadLetter(items []sqlbatch.DeadLetterItem) sqlbatch.Statement {
	return named("dead-letter", items, func(i sqlbatch.DeadLetterItem) sqlbatch.Item { return i.Item })
}

func (statements) Extend(_ [16]byte, items []sqlbatch.Item, _ time.Duration) sqlbatch.Statement {
	return named("extend", items, func(i sqlbatch.Item) sqlbatch.Item { return i })
}

func (f *fake) Build(bool) sqlbatch.Queue { return statements{} }

func (f *fake) AckStatement(sql sqlbatch.Queue, items []sqlbatch.Item) sqlbatch.Statement {
	return sql.Ack(items)
}

func (f *fake) Items(ctx context.Context, st sqlbatch.Statement, _ []sqlbatch.Item) ([]sqlbatch.Item, bool, error) {
	items := make([]sqlbatch.Item, len(st.Args))
	for i, arg := range st.Args {
		items[i] = arg.(sqlbatch.Item)
	}
	gone := st.Text == "ack" || st.Text == "dead-letter"
	changed, left, err := f.change(ctx, st.Text, items, gone, st.Text == "extend")
	if st.Text == "ack" && len(changed) == len(items) {
		changed = []sqlbatch.Item{{}} // as an engine may that acks all
	}
	return changed, left, err
}

// Replace waits for no lock: a database does if skipLocked is false.
func (f *fake) Replace(ctx context.Context, items []sqlbatch.Item, skipLocked bool,
	store func(*sql.Tx, []sqlbatch.Item) error) error {
	f.mu.Lock()
	var held []sqlbatch.Item
	for _, it := range slices.Backward(items) { // a database has its own order
		if f.locked[it.ID] && !skipLocked {
			f.mu.Unlock()
			return classed{sqlbatch.RolledBack}
		}
		if f.rows[it.ID] == it.Fence && !f.locked[it.ID] {
			held = append(held, it)
		}
	}
	f.mu.Unlock()
	if err := store(nil, slices.Clone(held)); err != nil {
		return err
	}
	_, _, err := f.change(ctx, "replace", held, true, false)
	return err
}

func (f *fake) Look(_ context.Context, _ time.Duration, ids [][16]byte) (table.Seen, error) {
	f.note(fmt.Sprintf("look(%d)", len(ids)))
	f.mu.Lock()
	defer f.mu.Unlock()
	return table.Seen{Fences: maps.Clone(f.rows), Locked: maps.Clone(f.locked)}, nil
}

// The owner.

func (f *fake) Settle(ctx context.Context, l *lease.Lease) error { return f.settler.Add(ctx, l) }
func (f *fake) Extend(context.Context, *lease.Lease, time.Duration) (bool, error) {
	f.note("owner extends")
	return true, nil
}
func (f *fake) Expire(l *lease.Lease) { l.Lose(lease.Expired) }
func (f *fake) Expedite()             { f.settler.Expedite() }
func (f *fake) Changed(leases ...*lease.Lease) {
	f.note("changed")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range leases {
		if l.End() {
			f.ended = append(f.ended, l)
		}
	}
}
