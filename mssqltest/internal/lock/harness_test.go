package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	forever = lock.Wait{Timeout: -1}
	noWait  = lock.Wait{}
	skip    = lock.Wait{Skip: true}
)

func key(k string) lock.Resource    { return lock.Resource{Object: 7, Index: 1, Key: k} }
func whole(o uint32) lock.Resource  { return lock.Resource{Object: o} }
func app(name string) lock.Resource { return lock.Resource{App: name} }

// manager is a lock manager whose waits and timers the test observes and controls.
type manager struct {
	lock.Manager
	t      *testing.T
	waits  chan lock.Info
	timers chan chan time.Time
}

func newManager(t *testing.T) *manager {
	r := &manager{t: t, waits: make(chan lock.Info, 64), timers: make(chan chan time.Time, 64)}
	r.Manager = lock.New(lock.Options{
		OnWait: func(i lock.Info) { r.waits <- i },
		After: func(time.Duration) (<-chan time.Time, func()) {
			c := make(chan time.Time, 1)
			r.timers <- c
			return c, func() {}
		},
	})
	return r
}

// holder returns a new owner that holds mode on each resource.
func (r *manager) holder(session int, mode lock.Mode, on ...lock.Resource) lock.Owner {
	r.t.Helper()
	o := r.NewOwner(session, 0)
	for _, res := range on {
		require.NoError(r.t, o.Lock(r.t.Context(), res, mode, noWait))
	}
	return o
}

// pending is a Lock that waits in a separate goroutine.
type pending struct {
	t    *testing.T
	done chan error
}

// start runs Lock and returns when it waits.
func (r *manager) start(o lock.Owner, res lock.Resource, mode lock.Mode, w lock.Wait) *pending {
	r.t.Helper()
	return r.startContext(r.t.Context(), o, res, mode, w)
}

func (r *manager) startContext(ctx context.Context, o lock.Owner, res lock.Resource, mode lock.Mode, w lock.Wait) *pending {
	r.t.Helper()
	p := &pending{t: r.t, done: make(chan error, 1)}
	go func() { p.done <- o.Lock(ctx, res, mode, w) }()
	select {
	case <-r.waits:
	case err := <-p.done:
		require.FailNow(r.t, "the request did not wait", "it got %v", err)
	}
	return p
}

// result returns the result of the Lock. It has a deadline, so that a lost wake-up fails the test instead of hanging
// it.
func (p *pending) result() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(time.Minute):
		require.FailNow(p.t, "the request is still waiting")
		return nil
	}
}

// rowLocks counts the row and key locks that a session holds on one index of object 7.
func (r *manager) rowLocks(session int, index uint16) (n int) {
	for _, i := range r.Snapshot() {
		if i.Session == session && !i.Waiting && i.Resource.Object == 7 && i.Resource.Index == index && i.Resource.Key != "" {
			n++
		}
	}
	return n
}

func (r *manager) requireWaiting(sessions ...int) {
	r.t.Helper()
	got := []int{}
	for _, i := range r.Snapshot() {
		if i.Waiting {
			got = append(got, i.Session)
		}
	}
	require.Equal(r.t, sessions, got, "waiters, in the order of the queue")
}

func number(t testing.TB, err error) int32 {
	t.Helper()
	var e *sqltype.Error
	require.True(t, errors.As(err, &e), "%v is not an error of the server", err)
	return e.Number
}
