package pipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/pipe"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

var (
	errAway    = errors.New("away")
	errRefused = errors.New("refused")
	errUndone  = errors.New("undone")
)

// rig is a store in memory, and the consumer of the inputs.
type rig struct {
	mu      sync.Mutex     // guards what follows; nothing blocks under it
	rows    map[byte]int64 // the existing inputs, with their fences
	locked  map[byte]bool
	stored  []string
	groups  [][]int                // sizes of the statements of outputs, by transaction
	fail    func(row string) error // of one output
	lost    func() error           // after a commit
	outcome map[byte]string
	events  []string

	home      lease.Home
	abandoned context.Context
	abandon   context.CancelFunc
	pipe      *pipe.Pipe
	ended     chan struct{}
	closed    bool
}

type health struct{}

func (health) Worked(time.Time)        {}
func (health) Failed(time.Time, error) {}

func start(t *testing.T) *rig {
	r := &rig{rows: map[byte]int64{}, locked: map[byte]bool{}, outcome: map[byte]string{}, ended: make(chan struct{})}
	r.abandoned, r.abandon = context.WithCancel(t.Context())
	r.home = lease.Home{Owner: r, Parent: t.Context()}
	r.pipe = pipe.New(pipe.Config{
		Store: r, From: r, Inputs: 10, BatchRows: 3, BatchBytes: 100, Linger: time.Millisecond, Timeout: time.Second,
		Longest: 10 * time.Second,
		Classify: func(err error) sqlbatch.Class {
			switch {
			case errors.Is(err, errRefused):
				return sqlbatch.BadRow
			case errors.Is(err, errUndone):
				return sqlbatch.RolledBack
			}
			return sqlbatch.Unknown
		},
		Health: health{}, Isolated: &base.Isolated{}, Reason: "output: ",
		Failed: func(item *pipe.Item, err error) time.Duration {
			r.event("failed %d", item.Of)
			return time.Minute
		},
		Sent: func(n int, _ notify.Slots, _ bool, _ time.Duration) { r.event("sent %d", n) },
	})
	t.Cleanup(r.end)
	return r
}

// change changes the rig while the pipe runs.
func (r *rig) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rig) event(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

// end ends the pipe.
func (r *rig) end() {
	if !r.closed {
		r.closed = true
		r.pipe.Close()
	}
	<-r.ended
}

// add adds inputs, each with these outputs and its number, and runs the pipe. It is called once.
func (r *rig) add(outputs []string, ids ...byte) {
	for _, id := range ids {
		r.change(func() { r.rows[id] = 1 })
		l := &lease.Lease{Home: &r.home, Item: sqlbatch.Item{ID: [16]byte{id}, Fence: 1}, Attempt: 1}
		l.Period.Begin(base.Now()+time.Hour, base.Now()+time.Hour)
		item := new(pipe.Item)
		item.Begin(l, id)
		for _, body := range outputs {
			item.Append(sqlbatch.Row{Body: []byte(fmt.Sprint(body, id))}, false)
		}
		r.pipe.Add(item)
	}
	go func() { // after them, so that they are one batch
		defer close(r.ended)
		r.pipe.Run()
	}()
	synctest.Wait()
}

func (r *rig) Replace(_ context.Context, inputs []sqlbatch.Item, skipLocked bool,
	outputs func([]sqlbatch.Item, func([]sqlbatch.Row, bool) error) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var held []sqlbatch.Item
	for _, it := range inputs {
		id := it.ID[0]
		if r.locked[id] && !skipLocked {
			return errUndone // it waited for the lock
		}
		if r.rows[id] == it.Fence && !r.locked[id] {
			held = append(held, it)
		}
	}
	slices.Reverse(held) // a database has its own order
	var stored []string
	var sizes []int
	if err := outputs(held, func(rows []sqlbatch.Row, _ bool) error {
		sizes = append(sizes, len(rows))
		for _, row := range rows {
			if r.fail != nil {
				if err := r.fail(string(row.Body)); err != nil {
					return err
				}
			}
			stored = append(stored, string(row.Body))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, it := range held {
		delete(r.rows, it.ID[0])
	}
	r.stored, r.groups = append(r.stored, stored...), append(r.groups, sizes)
	if r.lost != nil {
		return r.lost()
	}
	return nil
}

func (r *rig) Look(_ context.Context, _ time.Duration, ids [][16]byte) (table.Seen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := table.Seen{Fences: map[[16]byte]int64{}, Locked: map[[16]byte]bool{}}
	for _, id := range ids {
		if fence, ok := r.rows[id[0]]; ok {
			seen.Fences[id], seen.Locked[id] = fence, r.locked[id[0]]
		}
	}
	return seen, nil
}

func (r *rig) Connect(context.Context, time.Duration) {}
func (r *rig) Close()                                 {}

func (r *rig) Settle(context.Context, *lease.Lease) error                        { return nil }
func (r *rig) Extend(context.Context, *lease.Lease, time.Duration) (bool, error) { return true, nil }
func (r *rig) Expire(*lease.Lease)                                               {}
func (r *rig) Expedite()                                                         {}
func (r *rig) Changed(leases ...*lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range leases {
		if l.State() == lease.Settled {
			r.outcome[l.Item.ID[0]] = fmt.Sprint(l.Outcome())
		}
	}
}
func (r *rig) Abandoned() context.Context { return r.abandoned }
func (r *rig) Take()                      {}
func (r *rig) SettleAll(leases ...*lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range leases {
		r.outcome[l.Item.ID[0]] = l.Op.String() + " " + l.Text
	}
}
func (r *rig) Finished(_ time.Time, outcomes []batch.Outcome[*lease.Lease]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range outcomes {
		r.outcome[o.Item.Item.ID[0]] = fmt.Sprint(o.Err)
	}
}
func (r *rig) Broken(op string, err error) { r.event("broken %s %v", op, err) }

func ok(ids ...byte) map[byte]string {
	m := map[byte]string{}
	for _, id := range ids {
		m[id] = "<nil>"
	}
	return m
}

func TestInputsAreReplacedInOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.add([]string{"a", "b"}, 1, 2, 3)
		r.end()
		require.Equal(t, ok(1, 2, 3), r.outcome)
		require.Equal(t, []string{"a1", "b1", "a2", "b2", "a3", "b3"}, r.stored)
		require.Equal(t, [][]int{{3, 3}}, r.groups, "in statements of BatchRows")
		require.Equal(t, []string{"sent 6"}, r.events)
	})
}

func TestABatchHasOutputsOfBatchBytesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.add([]string{strings.Repeat(".", 49)}, 1, 2, 3)
		r.end()
		require.Equal(t, [][]int{{2}, {1}}, r.groups)
	})
}

func TestOutputsOfALostInputAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.locked[2] = true
		r.add([]string{"a"}, 1, 2, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, ok(1, 3), r.outcome, "a locked row delays no other input")
		r.change(func() { r.rows[2], r.locked[2] = 7, false }) // leased by another consumer
		r.end()
		require.Equal(t, []string{"a1", "a3"}, r.stored)
		require.Equal(t, lease.ErrLost.Error(), r.outcome[2])
	})
}

func TestAnInputThatWasLockedIsReplacedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.locked[2] = true
		r.add([]string{"a"}, 1, 2)
		time.AfterFunc(3*time.Second, func() { r.change(func() { r.locked[2] = false }) })
		r.end()
		require.Equal(t, ok(1, 2), r.outcome)
		require.Equal(t, []string{"a1", "a2"}, r.stored)
	})
}

func TestOnlyTheInputWhoseOutputIsRefusedIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.fail = func(row string) error {
			if row == "a2" {
				return errRefused
			}
			return nil
		}
		r.add([]string{"a"}, 1, 2, 3, 4)
		r.end()
		want := ok(1, 3, 4)
		want[2] = "dead-letter output: refused"
		require.Equal(t, want, r.outcome)
		slices.Sort(r.stored)
		require.Equal(t, []string{"a1", "a3", "a4"}, r.stored)
	})
}

func TestAnInputThatIsUndoneForLongIsNacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.fail = func(row string) error {
			if row == "a2" {
				return errUndone
			}
			return nil
		}
		r.add([]string{"a"}, 1, 2)
		began := time.Now()
		r.end()
		require.Equal(t, "nack output: undone", r.outcome[2])
		require.Equal(t, "<nil>", r.outcome[1])
		require.InDelta(t, 10, time.Since(began).Seconds(), 6, "after Longest")
		require.Contains(t, r.events, "failed 2")
	})
}

func TestACommitOfUnknownOutcomeIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.lost = func() error { r.lost = nil; return errAway }
		r.add([]string{"a"}, 1, 2)
		r.end()
		require.Equal(t, []string{"a1", "a2"}, r.stored, "once")
		require.Equal(t, ok(1, 2), r.outcome, "missing inputs were replaced")
		require.Equal(t, []string{"sent 2"}, r.events)
	})
}

func TestInputsThatAreGivenUpHaveAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.fail = func(string) error { return errAway }
		r.add([]string{"a"}, 1, 2)
		time.Sleep(5 * time.Second)
		require.Empty(t, r.outcome)
		r.abandon()
		r.end()
		require.Len(t, r.outcome, 2)
		for _, o := range r.outcome {
			require.NotEqual(t, "<nil>", o)
		}
	})
}
