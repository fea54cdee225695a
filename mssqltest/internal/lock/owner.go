package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// owner is the Owner of package lock. Its goroutine calls its methods; other goroutines, under the table's mutex, grant
// its requests.
type owner struct {
	table    *table
	session  int
	priority atomic.Int64 // read by other owners' deadlock searches
	cost     atomic.Int64

	// Guarded by table.mu.
	held      *hold
	waiting   *request
	searched  uint64 // the last deadlock search that visited it
	escalated map[uint32]struct{}
}

func (o *owner) Lock(ctx context.Context, r Resource, mode Mode, w Wait) error {
	err := o.lock(ctx, r, mode, w)
	if err == nil && o.table.opts.OnLock != nil {
		o.table.opts.OnLock(Info{Session: o.session, Resource: r, Mode: mode})
	}
	return err
}

func (o *owner) lock(ctx context.Context, r Resource, mode Mode, w Wait) error {
	mustSuit(r, mode)
	t := o.table
	t.mu.Lock()
	if o.protected(r, mode) {
		t.mu.Unlock()
		return nil
	}
	e := t.entry(r)
	own := e.holdOf(o)
	want := mode
	if own != nil {
		want = Union(own.mode, mode)
	}
	if e.free(own, want, e.waiting) {
		t.grant(e, o, own, mode)
		t.mu.Unlock()
		return nil
	}
	if w.Skip || w.Timeout == 0 {
		t.mu.Unlock()
		if w.Skip {
			return ErrBusy
		}
		return timeoutError()
	}
	q := &request{owner: o, entry: e, hold: own, asked: mode, want: want, answeredCh: make(chan struct{})}
	t.enqueue(q)
	t.breakDeadlocks(q)
	if q.answered {
		t.mu.Unlock()
		return q.err
	}
	info := q.info()
	t.mu.Unlock()
	if t.opts.OnWait != nil {
		t.opts.OnWait(info)
	}
	return t.await(ctx, q, w.Timeout)
}

// await returns q's answer, or withdraws q when ctx or the timeout ends first. An answer at the same moment is valid: a
// lock once granted is held.
func (t *table) await(ctx context.Context, q *request, timeout time.Duration) error {
	var expired <-chan time.Time
	if timeout > 0 {
		ch, stop := t.opts.After(timeout)
		defer stop()
		expired = ch
	}
	var err error
	select {
	case <-q.answeredCh:
		return q.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-expired:
		err = timeoutError()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !q.answered {
		t.withdraw(q, err)
	}
	return q.err
}

func (o *owner) Unlock(r Resource, mode Mode) {
	t := o.table
	t.mu.Lock()
	defer t.mu.Unlock()
	var h *hold
	if e := t.entries[r]; e != nil {
		h = e.holdOf(o)
	}
	if h == nil || h.count[mode] == 0 {
		if _, ok := o.escalated[r.Object]; ok && r.Key != "" {
			return
		}
		panic(fmt.Sprintf("lock: session %d unlocks %v on %+v, which it has not locked", o.session, mode, r))
	}
	h.count[mode]--
	left := None
	for m := range Mode(modeCount) {
		if h.count[m] > 0 {
			left = Union(left, m)
		}
	}
	switch left {
	case h.mode:
	case None:
		t.drop(h)
	default:
		h.mode = left
		t.wake(h.entry)
	}
}

func (o *owner) Held(r Resource) Mode {
	o.table.mu.Lock()
	defer o.table.mu.Unlock()
	return o.heldOn(r)
}

func (o *owner) AddCost(n int) { o.cost.Add(int64(n)) }

func (o *owner) SetDeadlockPriority(p int) { o.priority.Store(int64(p)) }

func (o *owner) Release() {
	t := o.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for o.held != nil {
		t.drop(o.held)
		if t.opts.OnRelease != nil {
			t.mu.Unlock()
			t.opts.OnRelease()
			t.mu.Lock()
		}
	}
	clear(o.escalated)
	o.cost.Store(0)
}

func (o *owner) heldOn(r Resource) Mode {
	if e := o.table.entries[r]; e != nil {
		if h := e.holdOf(o); h != nil {
			return h.mode
		}
	}
	return None
}

// adopt and disown maintain the owner's own list.
func (o *owner) adopt(h *hold) {
	h.nextOfOwner = o.held
	if o.held != nil {
		o.held.prevOfOwner = h
	}
	o.held = h
}

func (o *owner) disown(h *hold) {
	if h.prevOfOwner != nil {
		h.prevOfOwner.nextOfOwner = h.nextOfOwner
	} else {
		o.held = h.nextOfOwner
	}
	if h.nextOfOwner != nil {
		h.nextOfOwner.prevOfOwner = h.prevOfOwner
	}
}

// mustSuit panics for a mode that the server never requests on such a resource: this is a bug of the caller, which the
// emulator must not hide.
func mustSuit(r Resource, mode Mode) {
	row := r.Key != ""
	suits := mode != None && int(mode) < modeCount
	switch mode {
	case S, U, X:
	default:
		suits = suits && isRange(mode) == row
	}
	if !suits {
		panic(fmt.Sprintf("lock: %v does not apply to %+v", mode, r))
	}
}
