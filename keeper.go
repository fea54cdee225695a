package chanq

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/chanq/chanq/sqlbatch"
)

// keeper extends the leases that a consumer holds, delivered or still in the
// buffer, in one statement a tick, and ends those whose time ran out. Its
// goroutines are run, which watches the time, and one that run starts and joins
// for the statements: a driver may take seconds longer than its context to come
// back from a silent network, and leases must not end unnoticed meanwhile. hold
// may be called by another.
//
// A lease is extended when less than two thirds of LeaseFor are left, so that at
// least a third is left to try again. It is not extended while it is being
// settled, after AckTx (its row may be locked by the caller's transaction), nor
// after MaxExtend.
type keeper struct {
	queue    *queue
	sessions *sessions
	health   *health
	leaseFor time.Duration
	timeout  time.Duration

	mu      sync.Mutex
	holds   [][]*lease // one for each claim, so that registering costs one append
	count   int        // of leases in holds, ended ones too
	sweepAt int        // count at which hold drops the ended ones

	// turn is held for the time of an extension: of two for one lease under way at
	// once nobody could tell which one the database saw last.
	turn chan struct{}
	wake chan struct{} // a lease needs an extension before the next tick
	stop context.Context

	losses teller
}

// minSweep keeps small numbers of leases from being swept for nothing.
const minSweep = 2048

// hold takes charge of the leases of one claim. Between ticks a fast reader
// settles far more than are ever held at once: hold drops those that ended when
// they may be half of all, so that their messages do not stay in memory.
func (k *keeper) hold(leases []*lease) {
	k.mu.Lock()
	k.holds = append(k.holds, leases)
	k.count += len(leases)
	if k.count >= max(k.sweepAt, minSweep) {
		k.drop((*lease).hasEnded)
	}
	k.mu.Unlock()
	if k.due(leases[0], monotonic()) { // the claim was slow
		notify(k.wake)
	}
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
	return l.deadlineAt()-now < k.leaseFor*2/3 && now < time.Duration(l.until.Load())
}

func (k *keeper) run() {
	var extender conc.WaitGroup
	defer extender.Wait()
	batches, answers := make(chan []*lease), make(chan bool, 1)
	defer close(batches)
	extender.Go(func() {
		var tries backoff // of failures in a row
		for batch := range batches {
			answered := k.extend(batch, &tries)
			if answered {
				tries.reset()
			}
			answers <- answered
		}
	})
	tick := k.leaseFor / 3
	var pause backoff
	pause.low, pause.high = min(tick/4, refusedLow), tick
	wait := tick
	timer := time.NewTimer(wait)
	defer timer.Stop()
	busy, woken := false, false // a batch is under way; and k.wake called meanwhile
	for {
		extend := true
		select {
		case <-k.stop.Done():
			return
		case <-timer.C:
		case <-k.wake:
			woken = true
		case answered := <-answers:
			busy, extend, wait = false, woken, tick
			if answered {
				pause.reset()
			} else {
				wait = pause.pause()
			}
		}
		due, nearest := k.look(monotonic())
		switch {
		case busy:
			wait = tick
		case extend && len(due) > 0:
			batches <- due
			busy, woken, wait = true, false, tick
		case extend:
			pause.reset()
			woken, wait = false, tick
		}
		// The end of a lease that could not be extended is told in time.
		if left := nearest - monotonic(); left < wait {
			wait = max(left, time.Millisecond)
		}
		timer.Reset(wait)
	}
}

// look drops what is no longer held, expires what ran out, and returns what
// must be extended and the nearest deadline of what is left.
func (k *keeper) look(now time.Duration) (due []*lease, nearest time.Duration) {
	nearest = now + k.leaseFor
	var expired []*lease
	k.mu.Lock()
	k.drop(func(l *lease) bool {
		if l.hasEnded() || l.state.Load() != leaseHeld {
			return l.hasEnded()
		}
		deadline := l.deadlineAt()
		switch {
		case now >= deadline:
			expired = append(expired, l)
		case k.due(l, now):
			due = append(due, l)
		}
		nearest = min(nearest, deadline)
		return false
	})
	k.mu.Unlock()
	for _, l := range expired {
		k.tell(l, leaseExpired)
	}
	if len(expired) > 0 {
		nearest = now // look again at once: expired leases no longer count
	}
	return due, nearest
}

func (k *keeper) tell(l *lease, to leaseState) {
	if hook := k.queue.cfg.Hooks.LeaseLost; l.lose(to) && hook != nil {
		e := LeaseLostEvent{Queue: k.queue.name, ID: l.item.ID, Attempt: l.attempt, Confirmed: to == leaseLost}
		k.losses.tell(func() { call(hook, e) })
	}
}

// extend extends leases and reports whether the database answered.
func (k *keeper) extend(leases []*lease, tries *backoff) bool {
	if len(leases) == 0 {
		return true
	}
	// Neither a turn that another extension keeps nor a statement that hangs may
	// hide for long that leases ran out.
	patience, giveUp := context.WithTimeout(k.stop, k.patience(leases, monotonic()))
	defer giveUp()
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-patience.Done():
		return false
	}
	slices.SortFunc(leases, func(a, b *lease) int { return bytes.Compare(a.item.ID[:], b.item.ID[:]) })
	var items, changed []sqlbatch.Item
	for chunk := range slices.Chunk(leases, max(1, k.queue.dialect.Traits().AckItems)) {
		items, changed = items[:0], changed[:0]
		start := monotonic()
		// What is being settled by now, or acked in a transaction that would keep this
		// statement waiting, is left alone.
		chunk = slices.DeleteFunc(chunk, func(l *lease) bool { return l.state.Load() != leaseHeld })
		if len(chunk) == 0 {
			continue
		}
		for _, l := range chunk {
			items = append(items, l.item)
		}
		ctx, cancel := context.WithTimeout(k.stop, min(k.timeout, k.patience(chunk, start)))
		err := k.sessions.run(ctx, k.queue.sql.Extend(items, k.leaseFor), collectItems(&changed))
		cancel()
		if err != nil {
			if k.stop.Err() == nil && tries.outage(classify(k.queue.dialect, err), processStart.Add(start)) {
				k.health.failed(processStart.Add(start), err)
			}
			return false
		}
		k.health.worked(processStart.Add(start))
		slices.SortFunc(changed, compareItems)
		for _, l := range chunk {
			_, held := slices.BinarySearchFunc(changed, l.item, compareItems)
			switch {
			case held:
				l.deadline.Store(int64(deadlineAfter(start, k.leaseFor)))
			case l.state.Load() == leaseExpired: // meanwhile, and told
				l.lose(leaseLost)
			default:
				// Not if it was settled meanwhile: then its state is no longer held.
				k.tell(l, leaseLost)
			}
		}
	}
	return true
}

// patience is how long to wait for an extension of leases: until the first of
// them ends, or a little, should that be past.
func (k *keeper) patience(leases []*lease, now time.Duration) time.Duration {
	left := k.leaseFor
	for _, l := range leases {
		left = min(left, l.deadlineAt()-now)
	}
	return max(left, k.leaseFor/6)
}
