package chanq

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/sqlbatch"
)

// keeper extends the leases that a consumer holds, delivered or still in the
// buffer, and those whose settle is not stored yet, in one statement a tick, and
// ends those whose time ran out. Its goroutines are run, which watches the time,
// and one that run starts and joins for the statements, so that leases do not end
// unnoticed meanwhile. hold may be called by another.
//
// A lease is extended when less than two thirds of LeaseFor are left. A try takes a
// sixth at most, whatever the driver does, and the next one another session: a
// connection that hangs costs time and no lease. Rows that somebody has locked are
// left out and tried by themselves. A lease is not extended after AckTx (its row is
// locked by the caller's transaction), nor after MaxExtend.
//
// The database keeps the later of two ends, so extensions may overlap, and one that
// was left behind does no harm when it is carried out after all.
//
// SQLite writes all of a row again to extend its lease. So heavy ones are extended one by one,
// after all others, the largest last, and for a third of LeaseFor at most before it is the others' turn
// again; those that were too slow come behind them.
type keeper struct {
	queue    *queue
	sessions *sessions
	leaseFor time.Duration
	timeout  time.Duration
	// bound is beyond which no lease is extended: the end of the membership, of an ordered
	// queue; nil: none.
	bound func() time.Duration
	owner leaseOwner

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

	// Of the extender.
	most int // leases of a statement
	loop retry.Loop

	losses teller
}

// newKeeper makes the keeper of an owner. timeout is the most that a statement takes;
// end ends run.
func newKeeper(owner leaseOwner, s *sessions, h *health, leaseFor, timeout time.Duration) *keeper {
	q := owner.home()
	k := &keeper{
		queue: q, owner: owner, sessions: s, leaseFor: leaseFor, timeout: timeout,
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		loop: retry.Loop{Health: h, Classify: q.classify},
	}
	k.stop, k.end = context.WithCancel(context.Background())
	k.most = k.full()
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
	if k.due(first, monotonic()) { // the claim was slow
		notify(k.wake)
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
	return deadline-now < k.leaseFor*2/3 && now < time.Duration(l.until.Load()) && (k.bound == nil || deadline < k.bound())
}

func (k *keeper) run() {
	var extender sync.WaitGroup
	defer extender.Wait()
	batches, answers := make(chan []*lease), make(chan bool, 1)
	defer close(batches)
	extender.Go(func() {
		for batch := range batches {
			answers <- k.extendAll(batch)
		}
	})
	tick := k.leaseFor / 3
	pause := retry.Backoff{Low: min(tick/4, retry.RefusedPause), High: tick}
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
				pause.Reset()
			} else {
				wait = pause.Pause()
			}
		}
		due, nearest := k.review(monotonic())
		switch {
		case !extend && len(due) > 0:
			wait = min(wait, tick/4) // they are locked: there may be no time for another tick
		case busy:
			wait = tick
		case extend && len(due) > 0:
			batches <- due
			busy, woken, wait = true, false, tick
		case extend:
			pause.Reset()
			woken, wait = false, tick
		}
		// The end of a lease that could not be extended is told in time.
		if left := nearest - monotonic(); left < wait {
			wait = max(left, time.Millisecond)
		}
		timer.Reset(wait)
	}
}

// review drops what is no longer held, expires what ran out, and returns what
// must be extended and the nearest deadline of what is left.
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
		case k.due(l, now):
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
		k.losses.tell(func() { call(hook, e) })
	}
}

// full is the most leases of a statement.
func (k *keeper) full() int { return max(1, k.queue.dialect.Traits().AckItems) }

// heavyBody is how many bytes of a body make a lease heavy: more than almost all messages have,
// and written in a moment.
const heavyBody = 4 << 20

// extendAll extends leases and reports whether the database answered for all. Those
// that end first go first, and those that are heavy, or were found locked, go by themselves.
func (k *keeper) extendAll(leases []*lease) bool {
	slices.SortStableFunc(leases, func(a, b *lease) int { return cmp.Compare(a.deadlineAt(), b.deadlineAt()) })
	var free, locked, heavy []*lease
	for _, l := range leases {
		switch {
		case l.stuck:
			locked = append(locked, l)
		case l.heavy > 0:
			heavy = append(heavy, l)
		default:
			free = append(free, l)
		}
	}
	failed := 0
	each := func(leases []*lease, skip bool) (answered bool) {
		before := failed
		for len(leases) > 0 && failed < keeperTries && k.stop.Err() == nil {
			n := min(len(leases), k.most)
			f := k.loop.Try(k.stop, func(context.Context) error { return k.extendSome(leases[:n], skip) })
			if f != nil && k.stop.Err() == nil {
				failed++
				if n > 1 {
					k.most = max(1, k.most/2) // should one of them be the cause, it will be alone
				}
				k.loop.Failed(k.stop, f) // the pause is run's
				mind(k.owner, "extend", f.Err)
			}
			leases = leases[n:]
		}
		return failed == before
	}
	each(free, false)
	each(locked, true)
	slices.SortStableFunc(heavy, func(a, b *lease) int { return cmp.Or(cmp.Compare(a.slow, b.slow), cmp.Compare(a.heavy, b.heavy)) })
	away, slow := failed, 0
	for began := monotonic(); len(heavy) > 0 && monotonic()-began < k.leaseFor/3; heavy = heavy[1:] {
		if failed = away; !each(heavy[:1], false) {
			heavy[0].slow++
			slow++
		}
	}
	failed = away + slow + len(heavy)
	if failed == 0 {
		k.most = k.full()
	}
	k.sessions.Expect(k.leaseFor / 2) // the next tick, should they be held yet
	return failed == 0 && k.stop.Err() == nil
}

// keeperTries is how many statements of one round may fail before it is the database
// that does not answer.
const keeperTries = 2

// patience is how long a try may take: so short that several fit what is left of a
// lease, where it is not shorter than what a healthy database may need.
func (k *keeper) patience() time.Duration {
	return min(k.timeout, max(k.leaseFor/6, min(k.leaseFor/2, settleMoment)))
}

// extendSome extends the leases of one statement. With skip, those that are locked
// are left out in any case.
func (k *keeper) extendSome(leases []*lease, skip bool) error {
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b *lease) int { return compareItems(a.item, b.item) })
	for {
		// What was acked by now in a transaction, which keeps its row, is left alone.
		leases = slices.DeleteFunc(leases, func(l *lease) bool {
			s := l.state.Load()
			return s != leaseHeld && s != leaseSettling
		})
		if len(leases) == 0 {
			return nil
		}
		missing, err := k.extendOnce(leases, skip)
		switch {
		case err == nil && len(missing) == 0:
			return nil
		case err == nil:
			return k.lookAfter(missing)
		case skip || k.queue.classify(err) != sqlbatch.RolledBack:
			return err
		}
		skip = true // somebody has locked one of them
	}
}

// extendOnce runs one statement and returns the leases that it did not extend.
func (k *keeper) extendOnce(leases []*lease, skip bool) (missing []*lease, err error) {
	sql := k.queue.sql
	if skip {
		sql = sql.SkipLocked()
	}
	items := make([]sqlbatch.Item, len(leases))
	for i, l := range leases {
		items[i] = l.item
	}
	start, bound := monotonic(), time.Duration(math.MaxInt64)
	if k.bound != nil {
		bound = k.bound()
	}
	ctx, cancel := context.WithTimeout(k.stop, k.patience())
	defer cancel()
	changed, _, err := k.sessions.Items(ctx, sql.Extend(items, k.leaseFor), make([]sqlbatch.Item, 0, len(items)))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(changed, compareItems)
	for _, l := range leases {
		if _, held := slices.BinarySearchFunc(changed, l.item, compareItems); held {
			l.stuck = false
			l.prolong(min(deadlineAfter(start, k.leaseFor), bound))
		} else {
			missing = append(missing, l)
		}
	}
	return missing, nil
}

// lookAfter finds out what became of leases that an extension did not return. Those
// that are locked go by themselves from now on.
func (k *keeper) lookAfter(missing []*lease) error {
	seen, err := k.queue.look(k.stop, k.sessions, k.patience(), missing)
	if err != nil {
		return err
	}
	for _, l := range missing {
		switch state := l.state.Load(); {
		case seen.of(l.item) == standsOurs:
			l.stuck = true
		case state == leaseExpired: // meanwhile, and told
			l.lose(leaseLost)
		default:
			// Not if it is being settled, by which it may have gone: then that tells.
			k.loseLease(l, leaseLost)
		}
	}
	return nil
}
