package chanq

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/claim"
)

// keeper has the leases that a consumer holds, delivered or still in the buffer, and those whose settle is not
// stored yet: it extends them, and ends those whose time ran out. Its goroutines are run, which watches the time, and
// those of the writer (extender.go), which run starts and joins. hold may be called by another.
//
// The leases are looked at each third of LeaseFor, and one of which less than five sixths are left is extended: so at least
// half of its time is left for the statements. A lease is not extended after AckTx (its row is
// locked by the caller's transaction), nor after MaxExtend.
type keeper struct {
	queue    *queue
	sessions *sessions
	leaseFor time.Duration
	timeout  time.Duration
	owner    leaseOwner
	here     *claim.Membership // of an ordered queue: no lease outlives it; else nil

	// mu guards what follows, for one pass over the leases at most: claims wait for it.
	// Nothing is called under it that waits.
	mu      sync.Mutex
	holds   [][]*lease // one for each claim, so that registering costs one append
	count   int        // of leases in holds, ended ones too
	sweepAt int        // count at which hold drops the ended ones

	turn chan struct{} // held by a try of Lease.Extend: it leaves one session to the keeper
	wake chan struct{} // a lease needs an extension before the next tick
	stop context.Context
	end  context.CancelFunc

	writer *batch.Writer[*extension]
	losses base.Events
}

// newKeeper makes the keeper of an owner. timeout is the most that a statement takes, and here is nil for a plain queue;
// end ends run.
func newKeeper(owner leaseOwner, s *sessions, h *base.Availability, here *claim.Membership, leaseFor, timeout time.Duration) *keeper {
	q := owner.home()
	k := &keeper{
		queue: q, owner: owner, here: here, sessions: s, leaseFor: leaseFor, timeout: timeout,
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
	k.stop, k.end = context.WithCancel(context.Background())
	k.writer = k.newWriter(h)
	return k
}

// minSweep keeps small numbers of leases from being swept for nothing.
const minSweep = 2048

// hold takes charge of the leases of one claim. Between ticks a fast reader
// settles far more than are ever held at once: hold drops those that ended when
// they may be half of all, so that their messages do not stay in memory. The slice is the
// keeper's from here on.
func (k *keeper) hold(leases []*lease) {
	first := leases[0]
	k.mu.Lock()
	k.holds = append(k.holds, leases)
	k.count += len(leases)
	if k.count >= max(k.sweepAt, minSweep) {
		k.drop((*lease).hasEnded)
	}
	k.mu.Unlock()
	if k.due(first, base.Now()) { // the claim was slow
		base.Signal(k.wake)
	}
}

// held returns the leases that somebody holds, in the buffer or as a reader.
func (k *keeper) held() (held []*lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, hold := range k.holds {
		for _, l := range hold {
			if l.state.Load() == leaseHeld {
				held = append(held, l)
			}
		}
	}
	return held
}

// drop removes the leases of which gone is true, and counts the rest. mu is held.
func (k *keeper) drop(gone func(*lease) bool) {
	k.count = 0
	for i, hold := range k.holds {
		k.holds[i] = slices.DeleteFunc(hold, gone)
		k.count += len(k.holds[i])
	}
	k.holds = slices.DeleteFunc(k.holds, func(hold []*lease) bool { return len(hold) == 0 })
	k.sweepAt = 2 * k.count
}

// due reports that a lease should be extended now.
func (k *keeper) due(l *lease, now time.Duration) bool {
	deadline := l.deadlineAt()
	if deadline-now >= k.leaseFor*5/6 || now >= time.Duration(l.until.Load()) {
		return false
	}
	_, ends := k.member()
	return deadline < ends
}

// member returns the consumer's ID for an extension, and when all leases end at the latest, as things stand.
func (k *keeper) member() (id [16]byte, ends time.Duration) {
	if k.here == nil {
		return id, math.MaxInt64
	}
	term, ends, _ := k.here.Current()
	return term.ID, ends
}

func (k *keeper) run() {
	var writer sync.WaitGroup
	writer.Go(func() { k.writer.Run(k.stop) })
	defer writer.Wait()
	tick := k.leaseFor / 3
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-k.stop.Done():
			return
		case <-timer.C:
		case <-k.wake:
		}
		due, nearest := k.review(base.Now())
		k.extendAll(due)
		// The end of a lease that could not be extended is told in time.
		timer.Reset(min(tick, max(nearest-base.Now(), time.Millisecond)))
	}
}

// review drops what is no longer held, expires what ran out, and returns what
// must be extended, and is not in the writer, and the nearest deadline of what is left.
func (k *keeper) review(now time.Duration) (due []*lease, nearest time.Duration) {
	nearest = now + k.leaseFor
	var expired []*lease
	k.mu.Lock()
	k.drop(func(l *lease) bool {
		state := l.state.Load()
		if l.hasEnded() || state != leaseHeld && state != leaseSettling {
			return l.hasEnded()
		}
		deadline := l.deadlineAt()
		switch {
		case state == leaseHeld && now >= deadline:
			expired = append(expired, l)
		case k.due(l, now) && (l.extension == nil || !l.extension.pending.Load()):
			due = append(due, l)
		}
		if state == leaseHeld {
			nearest = min(nearest, deadline)
		}
		return false
	})
	k.mu.Unlock()
	for _, l := range expired {
		k.loseLease(l, leaseExpired)
	}
	if len(expired) > 0 {
		nearest = now // look again at once: expired leases no longer count
	}
	return due, nearest
}

func (k *keeper) loseLease(l *lease, to leaseState) {
	if hook := k.queue.cfg.Hooks.LeaseLost; l.lose(to) && hook != nil {
		e := l.lossEvent(to == leaseLost)
		k.losses.Enqueue(func() { call(hook, e) })
	}
}
