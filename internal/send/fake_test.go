package send_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/send"
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
	if undecided := (*send.UndecidedError)(nil); errors.As(err, &undecided) {
		return sqlbatch.BadRow
	}
	return sqlbatch.Refused
}

// kept is an origin that Keep has copied.
type kept struct{ int }

type health struct{}

func (health) Worked(time.Time)        {}
func (health) Failed(time.Time, error) {}

// fake is a table in memory. Rows are visible, in committed, when their transaction ends.
type fake struct {
	t         testing.TB
	mu        sync.Mutex
	committed [][16]byte // in the order of their commits
	places    map[[16]byte]int
	place     int // the last one: of a statement, or of a transaction that has begun
	keys      map[string][16]byte
	calls     []string
	fail      func(op string, rows []sqlbatch.Row) error // before a statement
	after     func(op string) error                      // after it was applied
	takes     time.Duration                              // duration of a statement, and of a commit
	blind     bool                                       // queries find nothing
	sender    *send.Sender
	notified  int
	sent      [][3]int   // messages, duplicates, bytes
	unsent    [][16]byte // in the order of the reports
}

// start runs a sender, and returns a function that closes it.
func (f *fake) start(change func(*send.Config)) (end func()) {
	open, shut := context.WithCancel(context.Background())
	abandoned, abandon := context.WithCancelCause(context.Background())
	cfg := send.Config{
		Table: f, Classify: classify, Health: health{}, Traits: sqlbatch.Traits{FindIDs: 100},
		BatchRows: 100, BatchBytes: 1 << 20, BufferBytes: 1 << 20, InFlight: 1,
		Linger: time.Millisecond, StatementTimeout: 10 * time.Second, Open: open, Abandoned: abandoned,
		Isolated: func(int, error) {}, Keep: func(o any) any { return kept{o.(int)} },
		Unsent: func(o send.Outcome) { f.unsent = append(f.unsent, o.ID) },
		Notify: func(n int, _ notify.Slots, _ bool) {
			time.Sleep(time.Millisecond)
			f.note("notify")
			f.mu.Lock()
			f.notified += n
			f.mu.Unlock()
		},
		Sent: func(_ time.Time, messages, duplicates, bytes int) {
			f.sent = append(f.sent, [3]int{messages, duplicates, bytes})
		},
	}
	if change != nil {
		change(&cfg)
	}
	f.sender = send.New(cfg)
	var running sync.WaitGroup
	running.Go(f.sender.Run)
	end = sync.OnceFunc(func() { shut(); f.sender.Close(); running.Wait(); abandon(nil); f.sender.End() })
	f.t.Cleanup(func() { f.sender.GiveUp(); end() }) // for a test that has failed
	return end
}

func (f *fake) note(call string) {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	f.mu.Unlock()
}

// failing makes statements fail: before they run, or after they were applied.
func (f *fake) failing(fail func(op string, rows []sqlbatch.Row) error, after func(op string) error) {
	f.mu.Lock()
	f.fail, f.after = fail, after
	f.mu.Unlock()
}

// run simulates a statement.
func (f *fake) run(ctx context.Context, op string, rows []sqlbatch.Row) error {
	f.note(fmt.Sprintf("%s(%d)", op, len(rows)))
	f.mu.Lock()
	fail, takes := f.fail, f.takes
	f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if fail != nil {
		return fail(op, rows)
	}
	return nil
}

// commit stores new rows, and returns their IDs.
func (f *fake) commit(op string, rows []sqlbatch.Row, unlessThere bool) (stored [][16]byte, err error) {
	f.mu.Lock()
	after := f.after
	for _, r := range rows {
		_, taken := f.keys[r.Key]
		if there := slices.Contains(f.committed, r.ID); there || r.Key != "" && taken {
			if !unlessThere {
				err = classed{sqlbatch.Duplicate}
			}
			continue
		}
		f.committed = append(f.committed, r.ID)
		if r.Key != "" {
			f.keys[r.Key] = r.ID
		}
		stored = append(stored, r.ID)
	}
	f.mu.Unlock()
	if after != nil && err == nil {
		err = after(op)
	}
	return stored, err
}

func (f *fake) Enqueue(ctx context.Context, rows []sqlbatch.Row) error {
	place := f.nextPlace()
	if err := f.run(ctx, "insert", rows); err != nil {
		return err
	}
	f.put(rows, place)
	_, err := f.commit("insert", rows, false)
	return err
}

func (f *fake) EnqueueNew(ctx context.Context, rows []sqlbatch.Row) (stored []table.Live, err error) {
	place := f.nextPlace()
	if err := f.run(ctx, "insert new", rows); err != nil {
		return nil, err
	}
	f.put(rows, place)
	ids, err := f.commit("insert new", rows, true)
	for _, id := range ids {
		stored = append(stored, table.Live{ID: id})
	}
	return stored, err
}

func (f *fake) Find(ctx context.Context, ids [][16]byte, keys []string) (found []table.Live, err error) {
	if err := f.run(ctx, "find", make([]sqlbatch.Row, len(ids))); err != nil || f.blind {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.committed {
		l := table.Live{ID: id}
		for key, of := range f.keys {
			if of == id {
				l.Key = key
			}
		}
		if slices.Contains(ids, id) || l.Key != "" && slices.Contains(keys, l.Key) {
			found = append(found, l)
		}
	}
	return found, nil
}

func (f *fake) Spare() bool { return true }

func (f *fake) Pack(rows []sqlbatch.Row) sqlbatch.Statement {
	return sqlbatch.Statement{Args: []any{slices.Clone(rows)}}
}

// tx is a transaction.
type tx struct {
	*fake
	rows *[]sqlbatch.Row
}

func (f *fake) InOwnTx(ctx context.Context, do func(send.Tx) error) error {
	var rows []sqlbatch.Row
	place := f.nextPlace()
	if err := do(tx{f, &rows}); err != nil {
		f.note("rollback")
		return err
	}
	f.put(rows, place)
	if err := f.run(ctx, "commit", rows); err != nil {
		return err
	}
	_, err := f.commit("commit", rows, false)
	return err
}

func (x tx) Draw(context.Context) (bool, error) { return false, nil }
func (x tx) Placed() bool                       { return true }
func (x tx) Enqueue(ctx context.Context, st sqlbatch.Statement) error {
	*x.rows = st.Args[0].([]sqlbatch.Row)
	return x.run(ctx, "insert begun", *x.rows)
}

func newFake(t testing.TB) *fake {
	return &fake{t: t, keys: map[string][16]byte{}, places: map[[16]byte]int{}}
}

func idOf(n int) [16]byte { return [16]byte{byte(n >> 8), byte(n), 1} }

// items returns messages first to last of a call.
func items(call *send.Call, first, last int) []send.Item {
	all := make([]send.Item, 0, last-first+1)
	for n := first; n <= last; n++ {
		all = append(all, send.Item{Place: batch.Place{Size: 100},
			ID: idOf(n), Body: make([]byte, 10), Origin: call, Index: int32(n - first)})
	}
	return all
}

// keyed gives an item a row.
func keyed(i *send.Item, row sqlbatch.Row) {
	row.ID, row.Body = i.ID, i.Body
	i.More = &row
}

// send stores messages first to last, and returns their outcomes.
func (f *fake) send(ctx context.Context, first, last int, change func(*send.Item)) []send.Outcome {
	call := send.NewCall(last - first + 1)
	all := items(call, first, last)
	for i := range all {
		if change != nil {
			change(&all[i])
		}
	}
	f.sender.Send(ctx, call, all)
	return call.Outcomes
}

func (f *fake) nextPlace() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.place++
	return f.place
}

// put sets the place of rows that have none.
func (f *fake) put(rows []sqlbatch.Row, place int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rows {
		if f.places[r.ID] == 0 {
			f.places[r.ID] = place
		}
	}
}

// stored returns what is committed, in that order. It fails if the places of the rows have another order.
func (f *fake) stored() [][16]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.committed); i++ {
		if f.places[f.committed[i]] < f.places[f.committed[i-1]] {
			f.t.Errorf("%x is committed after %x, and before it in the queue", f.committed[i], f.committed[i-1])
		}
	}
	return slices.Clone(f.committed)
}
