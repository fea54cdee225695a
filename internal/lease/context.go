package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Context is a lease as the context of its handler. Most handlers do not use
// it: the cancellable context is created on first use.
type Context Lease

// Context returns the context of the lease.
func (l *Lease) Context() context.Context { return (*Context)(l) }

func (c *Context) Deadline() (time.Time, bool) { return c.made().Deadline() }
func (c *Context) Done() <-chan struct{}       { return c.made().Done() }
func (c *Context) Err() error                  { return c.made().Err() }
func (c *Context) Value(key any) any           { return c.made().Value(key) }

// String keeps the fields of the lease out of printed contexts.
func (c *Context) String() string { return "chanq.Lease.Context" }

// made returns the cancellable context, and watches the lease from the first call on.
func (c *Context) made() *cancellable {
	l := (*Lease)(c)
	if made := l.ctx.used.Load(); made != nil {
		return made
	}
	made := l.ctx.make(l.Home)
	made.watch(l)
	// The lease might have ended before the context was stored.
	switch l.State() {
	case Lost, Expired:
		l.ctx.cancel(l.Home, ErrLost)
	case Settled:
		l.endContext()
	default:
		if l.Period.Deadline() <= base.Now() {
			made.timeUp() // the timer would be too late for this caller
		}
	}
	return made
}

// ownContext is the context of one lease, and that of the call that handles it together with other leases.
type ownContext struct {
	used atomic.Pointer[cancellable] // created on first use
	with atomic.Pointer[together]    // nil: no such call
}

func (c *ownContext) make(home *Home) *cancellable {
	ctx, cancel := context.WithCancelCause(home.Parent)
	made := &cancellable{Context: ctx, cancel: cancel, home: home}
	if !c.used.CompareAndSwap(nil, made) {
		cancel(nil)
	}
	return c.used.Load()
}

// cancel ends the context of the lease permanently, even if it was not used yet and
// the lease is extended afterwards.
func (c *ownContext) cancel(home *Home, cause error) {
	made := c.used.Load()
	if made == nil {
		made = c.make(home)
	}
	made.unwatch()
	made.cancel(cause)
}

// lost is cancel, and also ends the context of the call that handles the lease together with other leases.
func (c *ownContext) lost(home *Home, cause error) {
	c.cancel(home, cause)
	if t := c.with.Load(); t != nil {
		t.cancel(cause)
	}
}

// loss returns why the lease is lost: only the cause of its context tells.
func (c *ownContext) loss() error {
	if made := c.used.Load(); made != nil && context.Cause(made) == ErrCancelled {
		return ErrCancelled
	}
	return ErrLost
}

// Unwatch stops the timer of the context and leaves the context as it is. It is called when the lease has ended.
func (l *Lease) Unwatch() {
	if made := l.ctx.used.Load(); made != nil {
		made.unwatch()
	}
}

// endContext is called after the settle. If the settle did not reach the database,
// the lease will expire, and its context stays watched.
func (l *Lease) endContext() {
	switch err := l.Rare.Read().err; {
	case errors.Is(err, ErrLost):
		l.ctx.cancel(l.Home, ErrLost)
	case err == nil, errors.Is(err, ErrSettled):
		l.Unwatch()
	}
}

// cancellable is a context in use. Its own timer ends it at the deadline of the lease,
// because nothing else checks a lease that is in a transaction, being settled, or of a
// consumer whose Shutdown gave up. The timer is stopped when the lease has ended: until
// then it keeps the lease in memory.
type cancellable struct {
	context.Context
	cancel context.CancelCauseFunc
	home   *Home

	mu    sync.Mutex  // guards the fields below; no owner is called under it
	lease *Lease      // nil before watch, and at the end
	timer *time.Timer // nil before watch
	over  bool
}

// watch sets the timer that ends the context at the current deadline.
func (c *cancellable) watch(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.lease = l
	left := l.Period.Deadline() - base.Now()
	if c.timer == nil {
		c.timer = time.AfterFunc(left, c.timeUp)
	} else {
		c.timer.Reset(left)
	}
	c.home.contexts.add(c, c.cancel)
}

// unwatch stops the timer permanently. The runtime might keep a stopped timer for a
// while, but not the lease.
func (c *cancellable) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.lease = true, nil
	if c.timer != nil {
		c.timer.Stop()
		c.home.contexts.remove(c)
	}
}

// timeUp is called by the timer.
func (c *cancellable) timeUp() {
	c.mu.Lock()
	l := c.lease
	if l != nil {
		if left := l.Period.Deadline() - base.Now(); left > 0 { // it was extended in the meantime
			c.timer.Reset(left)
			l = nil
		}
	}
	c.mu.Unlock()
	if l != nil {
		l.Home.Owner.Expire(l)
		l.ctx.lost(l.Home, ErrLost) // also where the lease is in a transaction, or being settled
	}
}

// contexts are the contexts in use of an owner's leases. They are ended together.
type contexts struct {
	mu    sync.Mutex // guards the fields below; nothing is called under it
	used  map[any]context.CancelCauseFunc
	cause error // why all have ended, including later ones; nil before
}

// add adds a context, identified by of.
func (c *contexts) add(of any, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	cause := c.cause
	if cause == nil {
		if c.used == nil {
			c.used = map[any]context.CancelCauseFunc{}
		}
		c.used[of] = cancel
	}
	c.mu.Unlock()
	if cause != nil {
		cancel(cause)
	}
}

func (c *contexts) remove(of any) {
	c.mu.Lock()
	delete(c.used, of)
	c.mu.Unlock()
}

// EndContexts ends the contexts of all leases, with a cause. The states of the leases do not change.
func (h *Home) EndContexts(cause error) {
	h.contexts.mu.Lock()
	used := h.contexts.used
	h.contexts.used, h.contexts.cause = nil, cause
	h.contexts.mu.Unlock()
	for _, cancel := range used {
		cancel(cause)
	}
}

// together is the context of leases that one call handles.
type together struct {
	context.Context
	cancel context.CancelCauseFunc
}

// Together returns a context for a call that handles several leases of one owner. It ends when one of them is lost, or
// by EndContexts. end must be called when the call has returned.
func Together(leases []*Lease) (ctx context.Context, end func()) {
	home := leases[0].Home
	t := &together{}
	t.Context, t.cancel = context.WithCancelCause(home.Parent)
	home.contexts.add(t, t.cancel)
	for _, l := range leases {
		l.ctx.with.Store(t)
		if s := l.State(); s == Lost || s == Expired { // it ended before t was stored
			t.cancel(l.ctx.loss())
		}
	}
	return t, func() {
		home.contexts.remove(t)
		for _, l := range leases {
			l.ctx.with.Store(nil)
		}
		t.cancel(nil)
	}
}
