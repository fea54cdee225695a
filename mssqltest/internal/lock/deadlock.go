package lock

// deadlockSearch is the state of a walk through the wait-for graph. Its nodes are the waiting owners; each waits for
// one request at a time.
type deadlockSearch struct {
	round uint64
	path  []*request
}

// breakDeadlocks answers 1205 to one waiter of each cycle that q closes. A cycle can only appear when an owner begins
// to wait, and then contains it, so searching from there, and only then, finds all cycles.
//
// SQL Server searches every 5 seconds, down to every 100 ms while it finds deadlocks, and immediately for the waits
// that follow one. Always searching immediately differs for a client only in the time, and keeps tests quick.
func (t *table) breakDeadlocks(q *request) {
	for !q.answered {
		s := &t.search
		s.round++
		s.path = s.path[:0]
		if !s.leadsTo(q, q.owner) {
			return
		}
		v := victim(s.path)
		t.withdraw(v, victimError(v.owner.session))
	}
}

// victim returns the waiter of lowest deadlock priority, of these the cheapest to roll back. The server chooses among
// equals at random; here it is the last one that began to wait, which is the requester if it is among them.
func victim(cycle []*request) *request {
	v := cycle[0]
	for _, q := range cycle[1:] {
		if rollsBackBefore(q, v) {
			v = q
		}
	}
	return v
}

func rollsBackBefore(a, b *request) bool {
	if p, q := a.owner.priority.Load(), b.owner.priority.Load(); p != q {
		return p < q
	}
	if p, q := a.owner.cost.Load(), b.owner.cost.Load(); p != q {
		return p < q
	}
	return a.arrival > b.arrival
}

// leadsTo reports whether q waits, through others, for target. Then path has the waits on the way, q first.
func (s *deadlockSearch) leadsTo(q *request, target *owner) bool {
	s.path = append(s.path, q)
	bad := conflicts[q.want]
	for h := q.entry.granted; h != nil; h = h.nextOnEntry {
		if h != q.hold && bad.has(h.mode) && s.reaches(h.owner, target) {
			return true
		}
	}
	if q.hold == nil {
		for _, before := range q.entry.waiting {
			if before == q {
				break
			}
			if bad.has(before.want) && s.reaches(before.owner, target) {
				return true
			}
		}
	}
	s.path = s.path[:len(s.path)-1]
	return false
}

func (s *deadlockSearch) reaches(o, target *owner) bool {
	if o == target {
		return true
	}
	if o.waiting == nil || o.searched == s.round {
		return false
	}
	o.searched = s.round
	return s.leadsTo(o.waiting, target)
}
