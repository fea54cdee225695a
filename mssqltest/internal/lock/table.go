package lock

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configures New. The zero value is a lock manager with real time.
type Options struct {
	// After returns the timer of a request that waits with a timeout: a channel that receives after d, and a function that
	// frees the timer early. Default: a timer of package time.
	After func(d time.Duration) (<-chan time.Time, func())

	// OnWait is called by the goroutine that is about to wait, after its request has joined the queue and with no mutex
	// held. The request might have been answered by then. Default: none.
	OnWait func(Info)

	// OnLock is called by the requesting goroutine, after its request is granted, with no mutex held. Its session might
	// hold latches: the function may read the locks, and must not request one. Default: none.
	OnLock func(Info)

	// OnRelease is called by the goroutine that calls Release after each lock that it releases, with no mutex held: other
	// owners can lock in between. Default: none, and no lock in between.
	OnRelease func()
}

// New returns a lock manager that holds no locks.
func New(opts Options) Manager {
	if opts.After == nil {
		opts.After = realTimer
	}
	return &table{opts: opts, entries: make(map[Resource]*entry)}
}

func realTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// table is the lock manager: one mutex over one map, because granting a free lock takes a fraction of a microsecond and
// a deadlock search must see every queue at one moment.
type table struct {
	opts Options

	mu          sync.Mutex // guards the following fields, every entry and hold, and the fields of owners whose comments name it
	entries     map[Resource]*entry
	waits       uint64 // requests that have had to wait
	escalations int
	search      deadlockSearch

	// Empty entries and holds are reused: a claim takes and releases
	// thousands.
	freeEntries []*entry
	freeHolds   []*hold
}

// maxFree bounds the entries and holds kept for reuse: two claims of 1,000
// rows on two indexes.
const maxFree = 4096

func (t *table) NewOwner(session int, deadlockPriority int) Owner {
	o := &owner{table: t, session: session}
	o.priority.Store(int64(deadlockPriority))
	return o
}

func (t *table) Escalations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.escalations
}

// Snapshot is ordered by resource. For one resource the granted requests come first, by session, then the waiting ones
// in the order of the queue. A waiting conversion has a line of either kind.
func (t *table) Snapshot() []Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	infos := make([]Info, 0, len(t.entries))
	for _, e := range t.entries {
		for h := e.granted; h != nil; h = h.nextOnEntry {
			infos = append(infos, Info{Session: h.owner.session, Resource: e.resource, Mode: h.mode})
		}
		for _, q := range e.waiting {
			infos = append(infos, q.info())
		}
	}
	slices.SortStableFunc(infos, compareInfo)
	return infos
}

func compareInfo(a, b Info) int {
	if c := cmp.Or(
		cmp.Compare(a.Resource.Object, b.Resource.Object),
		cmp.Compare(a.Resource.Index, b.Resource.Index),
		strings.Compare(a.Resource.Key, b.Resource.Key),
		strings.Compare(a.Resource.App, b.Resource.App),
	); c != 0 {
		return c
	}
	switch {
	case a.Waiting && b.Waiting:
		return 0
	case a.Waiting:
		return 1
	case b.Waiting:
		return -1
	}
	return cmp.Compare(a.Session, b.Session)
}

// entry returns r's entry, and creates it if there is none.
func (t *table) entry(r Resource) *entry {
	e := t.entries[r]
	if e != nil {
		return e
	}
	if n := len(t.freeEntries); n > 0 {
		e, t.freeEntries = t.freeEntries[n-1], t.freeEntries[:n-1]
	} else {
		e = new(entry)
	}
	e.resource = r
	t.entries[r] = e
	return e
}

// forget drops e if it has no holder. Then it has no waiter either: wake would have granted the first of the queue.
func (t *table) forget(e *entry) {
	if e.granted != nil {
		return
	}
	delete(t.entries, e.resource)
	if len(t.freeEntries) < maxFree {
		*e = entry{waiting: e.waiting[:0]}
		t.freeEntries = append(t.freeEntries, e)
	}
}

func (t *table) newHold() *hold {
	if n := len(t.freeHolds); n > 0 {
		h := t.freeHolds[n-1]
		t.freeHolds = t.freeHolds[:n-1]
		return h
	}
	return new(hold)
}

func (t *table) freeHold(h *hold) {
	if len(t.freeHolds) < maxFree {
		*h = hold{}
		t.freeHolds = append(t.freeHolds, h)
	}
}
