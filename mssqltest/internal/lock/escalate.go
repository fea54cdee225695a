package lock

func (o *owner) Escalate(object uint32, mode Mode) bool {
	t := o.table
	t.mu.Lock()
	defer t.mu.Unlock()
	whole := Resource{Object: object}
	mustSuit(whole, mode)
	for h := o.held; h != nil; h = h.nextOfOwner {
		if h.isRowOf(object) && !protects(mode, h.mode) {
			mode = X
		}
	}
	e := t.entry(whole)
	own := e.holdOf(o)
	want := mode
	if own != nil {
		want = Union(own.mode, mode)
	}
	if !e.free(own, want, e.waiting) {
		return false
	}
	t.grant(e, o, own, mode)
	for h := o.held; h != nil; {
		next := h.nextOfOwner
		if h.isRowOf(object) {
			t.drop(h)
		}
		h = next
	}
	if o.escalated == nil {
		o.escalated = make(map[uint32]struct{})
	}
	o.escalated[object] = struct{}{}
	t.escalations++
	return true
}

// protected reports whether a table lock from an escalation makes a lock of mode on r superfluous.
func (o *owner) protected(r Resource, mode Mode) bool {
	if r.Key == "" || len(o.escalated) == 0 {
		return false
	}
	if _, ok := o.escalated[r.Object]; !ok {
		return false
	}
	return protects(o.heldOn(Resource{Object: r.Object}), mode)
}

func (h *hold) isRowOf(object uint32) bool {
	r := &h.entry.resource
	return r.Object == object && r.Key != ""
}

// protects reports whether a lock of mode on the table excludes all locks that a lock of mode row on each of its rows
// and keys would exclude. The other owners take the intent lock first.
func protects(table, row Mode) bool {
	switch table {
	case X, SchM:
		return true
	case U, UIX:
		return row == S || row == RangeSS || row == U || row == RangeSU
	case S, SIU, SIX:
		return row == S || row == RangeSS
	}
	return false
}
