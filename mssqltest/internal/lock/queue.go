package lock

import "slices"

// entry is one locked resource: its holders and waiters.
type entry struct {
	resource Resource
	granted  *hold
	waiting  []*request // conversions first, each kind in order of arrival
}

// hold has the locks of one owner on one resource. It is in two lists, the entry's and the owner's.
type hold struct {
	owner *owner
	entry *entry
	mode  Mode              // the union of the modes below whose count is not 0
	count [modeCount]uint32 // Locks not yet released, by the requested mode

	prevOnEntry, nextOnEntry *hold
	prevOfOwner, nextOfOwner *hold
}

// request is a waiting Lock.
type request struct {
	owner      *owner
	entry      *entry
	hold       *hold  // the owner's existing hold, if the request is a conversion
	asked      Mode   // the mode to count when it is granted
	want       Mode   // the mode that is held then
	arrival    uint64 // orders waits by their start
	answered   bool
	err        error
	answeredCh chan struct{} // closed once answered and err are set
}

func (q *request) info() Info {
	return Info{Session: q.owner.session, Resource: q.entry.resource, Mode: q.want, Waiting: true}
}

func (q *request) answer(err error) {
	q.answered, q.err = true, err
	q.owner.waiting = nil
	close(q.answeredCh)
}

func (e *entry) holdOf(o *owner) *hold {
	for h := e.granted; h != nil; h = h.nextOnEntry {
		if h.owner == o {
			return h
		}
	}
	return nil
}

// free reports whether want can be granted now to the owner of own, which is nil if it holds nothing yet. A conversion
// only needs to be compatible with the other holders. A new request must also be compatible with the pending requests
// before it, so that a stream of readers cannot starve a writer. This is the relaxed first in, first out of SQL Server
// 2005 and later, as its lock manager's developer described it.
func (e *entry) free(own *hold, want Mode, before []*request) bool {
	bad := conflicts[want]
	for h := e.granted; h != nil; h = h.nextOnEntry {
		if h != own && bad.has(h.mode) {
			return false
		}
	}
	if own != nil {
		return true
	}
	for _, q := range before {
		if bad.has(q.want) {
			return false
		}
	}
	return true
}

// grant counts one Lock of mode for o, whose hold is own or nil for none.
func (t *table) grant(e *entry, o *owner, own *hold, mode Mode) {
	if own == nil {
		own = t.newHold()
		own.owner, own.entry = o, e
		own.nextOnEntry = e.granted
		if e.granted != nil {
			e.granted.prevOnEntry = own
		}
		e.granted = own
		o.adopt(own)
	}
	own.count[mode]++
	own.mode = Union(own.mode, mode)
}

// drop releases all locks of h.
func (t *table) drop(h *hold) {
	e := h.entry
	if h.prevOnEntry != nil {
		h.prevOnEntry.nextOnEntry = h.nextOnEntry
	} else {
		e.granted = h.nextOnEntry
	}
	if h.nextOnEntry != nil {
		h.nextOnEntry.prevOnEntry = h.prevOnEntry
	}
	h.owner.disown(h)
	t.freeHold(h)
	t.wake(e)
	t.forget(e)
}

// enqueue puts q behind the other requests of its kind.
func (t *table) enqueue(q *request) {
	t.waits++
	q.arrival = t.waits
	e := q.entry
	at := len(e.waiting)
	if q.hold != nil {
		at = 0
		for at < len(e.waiting) && e.waiting[at].hold != nil {
			at++
		}
	}
	e.waiting = slices.Insert(e.waiting, at, q)
	q.owner.waiting = q
}

// withdraw answers q with err and grants requests that waited behind it.
func (t *table) withdraw(q *request, err error) {
	e := q.entry
	at := slices.Index(e.waiting, q)
	e.waiting = slices.Delete(e.waiting, at, at+1)
	q.answer(err)
	t.wake(e)
}

// wake grants all grantable requests in e's queue. One pass is enough: a grant makes no further request grantable.
func (t *table) wake(e *entry) {
	for i := 0; i < len(e.waiting); {
		q := e.waiting[i]
		if !e.free(q.hold, q.want, e.waiting[:i]) {
			i++
			continue
		}
		e.waiting = slices.Delete(e.waiting, i, i+1)
		t.grant(e, q.owner, q.hold, q.asked)
		q.answer(nil)
	}
}
