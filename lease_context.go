package chanq

import (
	"context"
	"errors"
	"time"
)

// leaseContext is a lease as the context of its handler. Most handlers ask nothing
// of it: what can be cancelled is made when it is first used.
type leaseContext lease

type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
}

func (c *leaseContext) Deadline() (time.Time, bool) { return c.made().Deadline() }
func (c *leaseContext) Done() <-chan struct{}       { return c.made().Done() }
func (c *leaseContext) Err() error                  { return c.made().Err() }
func (c *leaseContext) Value(key any) any           { return c.made().Value(key) }

// String keeps those who print a context from reading the lease.
func (c *leaseContext) String() string { return "chanq.Lease.Context" }

func (c *leaseContext) made() *cancellable {
	l := (*lease)(c)
	if made := l.ctx.Load(); made != nil {
		return made
	}
	ctx, cancel := context.WithCancelCause(l.owner.parent())
	made := &cancellable{ctx, cancel}
	if !l.ctx.CompareAndSwap(nil, made) {
		cancel(nil)
		return l.ctx.Load()
	}
	l.owner.watch(l)
	// A loss that came before the context could be seen is seen here.
	if s := l.state.Load(); s == leaseLost || s == leaseExpired || s == leaseSettled && errors.Is(l.err, ErrLeaseLost) {
		cancel(ErrLeaseLost)
	}
	return made
}
