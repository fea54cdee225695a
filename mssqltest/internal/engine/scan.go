package engine

import (
	"errors"
	"slices"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// scan walks one range of one index.
type scan struct {
	x   *exec
	a   *access
	t   *table
	ix  *index
	r   reading
	cur cursor

	from, to     string // keys: from <= key < to; empty to is the end
	pos          string // the last full key that was visited
	began        bool
	exact        bool // the range is one key of a unique index
	pending      string
	pendingLocks bool
}

// tableOf returns the table of a use in this run, which can be a table variable.
func (x *exec) tableOf(u *baseUse) *table {
	if u.param != nil {
		return x.f.tables[*u.param]
	}
	return u.table
}

// iterate runs the access: it calls yield for each row that passes, with the row in its slot.
func (a *access) iterate(x *exec, yield func() (bool, error)) (bool, error) {
	t := x.tableOf(a.use)
	ix := t.indexes[a.at]
	prefix := make([]byte, 0, 64)
	for i, sc := range a.eq {
		var v sqltype.Value
		if !a.isNull[i] {
			var err error
			if v, err = sc.eval(x); err != nil {
				return false, err
			}
			if v == nil {
				return true, nil
			}
		}
		prefix = appendKey(prefix, v)
	}
	if a.list == nil {
		return a.iterateRange(x, t, ix, prefix, yield)
	}
	var prefixes []string
	for _, sc := range a.list {
		v, err := sc.eval(x)
		if err != nil {
			return false, err
		}
		if v != nil {
			prefixes = append(prefixes, string(appendKey(slices.Clone(prefix), v)))
		}
	}
	slices.Sort(prefixes)
	for _, p := range slices.Compact(prefixes) {
		if more, err := a.iterateRange(x, t, ix, []byte(p), yield); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}

func (a *access) iterateRange(x *exec, t *table, ix *index, prefix []byte, yield func() (bool, error)) (bool, error) {
	s := &scan{x: x, a: a, t: t, ix: ix, r: x.readings[a.use.at], cur: cursor{t: ix.tree}}
	s.from = string(prefix)
	s.to, _ = successor(s.from)
	if a.unique {
		s.exact = true
	}
	if a.lo != nil || a.hi != nil {
		// NULL is below every value but satisfies no comparison.
		value := string(append(slices.Clone(prefix), keyValue))
		s.from = value
		s.to, _ = successor(value)
		if low := a.lo; low != nil {
			v, err := low.val.eval(x)
			if err != nil || v == nil {
				return v == nil, err
			}
			s.from = string(appendKey(slices.Clone(prefix), v))
			if !low.inclusive {
				s.from, _ = successor(s.from)
			}
		}
		if high := a.hi; high != nil {
			v, err := high.val.eval(x)
			if err != nil || v == nil {
				return v == nil, err
			}
			s.to = string(appendKey(slices.Clone(prefix), v))
			if high.inclusive {
				s.to, _ = successor(s.to)
			}
		}
		if s.to != "" && s.from >= s.to {
			return true, nil
		}
	}
	return s.run(yield)
}

// next finds the entry after pos. The caller holds the latch.
func (s *scan) next() (string, *record, bool) {
	var full string
	var rec *record
	switch {
	case !s.a.backward && !s.began:
		full, rec = s.cur.after(s.from, true)
	case !s.a.backward:
		full, rec = s.cur.after(s.pos, false)
	case !s.began && s.to == "":
		full, rec = s.cur.end()
	case !s.began:
		full, rec = s.cur.before(s.to)
	default:
		full, rec = s.cur.before(s.pos)
	}
	in := rec != nil
	if in && !s.a.backward {
		in = s.to == "" || full < s.to
	} else if in {
		in = full >= s.from
	}
	return full, rec, in
}

func (s *scan) step(full string) { s.pos, s.began = full, true }

// run visits the entries in order. If an entry's lock is free, the entry is found, locked and read at one moment under
// the table's latch. If not, the latch is released for the wait and the entry is searched again.
func (s *scan) run(yield func() (bool, error)) (bool, error) {
	x := s.x
	for {
		if err := x.ctx.Err(); err != nil {
			return false, err
		}
		s.t.latch.RLock()
		full, rec, in := s.next()
		if !in {
			again, err := s.guardEnd(full, rec)
			if again {
				continue
			}
			return err == nil, err
		}
		x.cost.KeysRead++
		key := lockKey(full)
		mode := s.r.row
		if mode != lock.None {
			if s.r.ranges && !s.exact {
				mode = rangeMode(mode)
			}
			err := s.acquire(key, mode)
			if errors.Is(err, lock.ErrBusy) {
				s.t.latch.RUnlock()
				if s.r.readPast {
					s.step(full)
					continue
				}
				if err := x.lockRow(s.ix, key, mode, s.r.wait); err != nil {
					return false, err
				}
				s.pending, s.pendingLocks = key, true
				continue
			}
			if err != nil {
				s.t.latch.RUnlock()
				return false, err
			}
		}
		v := s.version(rec)
		s.t.latch.RUnlock()
		s.step(full)
		more, err := s.visit(rec, v, key, mode, yield)
		if err != nil || !more {
			return more, err
		}
	}
}

// acquire locks the key without waiting; a lock that the scan has already waited for counts.
func (s *scan) acquire(key string, mode lock.Mode) error {
	if s.pendingLocks {
		s.pendingLocks = false
		if s.pending == key {
			return nil
		}
		// The awaited entry is gone.
		if !s.r.ranges {
			s.x.unlockRow(s.ix, s.pending, mode)
		}
	}
	return s.x.lockRow(s.ix, key, mode, tryOnly)
}

// version returns the state of rec that this reader sees. The caller holds the latch.
func (s *scan) version(rec *record) *version {
	switch {
	case s.r.versions:
		return rec.head.visible(s.r.snap, s.x.tx.state)
	case s.r.conflict:
		return rec.head.visible(s.r.snap, s.x.tx.state)
	}
	return rec.head
}

// guardEnd locks, at SERIALIZABLE, the range after the last entry. The caller holds the latch, which this releases.
func (s *scan) guardEnd(full string, rec *record) (again bool, err error) {
	if s.pendingLocks {
		s.pendingLocks = false
		if !s.r.ranges {
			s.x.unlockRow(s.ix, s.pending, s.r.row)
		}
	}
	if !s.r.ranges || s.r.row == lock.None || s.a.backward && rec != nil {
		s.t.latch.RUnlock()
		return false, nil
	}
	key := endOfIndex
	switch {
	case rec != nil:
		key = lockKey(full)
	case s.a.backward:
		key = s.ix.following(s.to)
		if s.began {
			s.t.latch.RUnlock()
			return false, nil
		}
	}
	mode := rangeMode(s.r.row)
	err = s.x.lockRow(s.ix, key, mode, tryOnly)
	s.t.latch.RUnlock()
	if !errors.Is(err, lock.ErrBusy) {
		return false, err
	}
	// Wait, then check whether an entry was inserted meanwhile.
	if err := s.x.lockRow(s.ix, key, mode, s.r.wait); err != nil {
		return false, err
	}
	return true, nil
}

// visit decides on one entry whose key is locked, looks up the row if necessary, and passes it on. It releases the
// locks according to the isolation level.
func (s *scan) visit(rec *record, v *version, key string, mode lock.Mode, yield func() (bool, error)) (bool, error) {
	x, a := s.x, s.a
	var locks []rowLock
	if mode != lock.None && !s.t.private {
		locks = append(locks, rowLock{s.ix, key, mode})
	}
	drop := func() {
		if !s.r.keep && !s.r.ranges {
			x.unlock(locks)
		}
	}
	reject := func() { // rows that do not qualify
		if !s.r.ranges && !s.r.keep {
			x.unlock(locks)
		}
	}
	if v == nil || v.row == nil || v.key(s.ix) != key {
		reject()
		return true, nil
	}
	sl := &x.slots[a.use.slot]
	*sl = slot{row: v.row, rec: rec, ver: v}
	if ok, err := pass(x, a.early); err != nil || !ok {
		reject()
		return true, err
	}
	x.cost.RowsRead++
	if a.lookup && mode != lock.None && !s.t.private {
		base := s.t.base()
		for {
			row := v.key(base)
			err := x.lockRow(base, row, s.r.row, tryOnly)
			if errors.Is(err, lock.ErrBusy) {
				if s.r.readPast && !(a.use.target && s.ix.finds(a.use)) {
					reject()
					return true, nil
				}
				err = x.lockRow(base, row, s.r.row, s.r.wait)
			}
			if err != nil {
				return false, err
			}
			locks = append(locks, rowLock{base, row, s.r.row})
			s.t.latch.RLock()
			fresh := s.version(rec)
			s.t.latch.RUnlock()
			if fresh == v {
				break
			}
			// The row changed before its lock was free: its entry in the index must still be right.
			if fresh == nil || fresh.row == nil || fresh.key(s.ix) != key {
				reject()
				return true, nil
			}
			moved := fresh.key(base) != row
			v = fresh
			*sl = slot{row: v.row, rec: rec, ver: v}
			if ok, err := pass(x, a.early); err != nil || !ok {
				reject()
				return true, err
			}
			if !moved {
				break
			}
		}
	}
	if ok, err := pass(x, a.late); err != nil || !ok {
		reject()
		return true, err
	}
	if s.r.conflict && a.use.target {
		s.t.latch.RLock()
		head := rec.head
		s.t.latch.RUnlock()
		if head != v {
			return false, errConflict(s.t, x.s.e.db.name)
		}
	}
	sl.locks = locks
	more, err := yield()
	if !sl.taken || s.r.row == lock.S {
		drop()
	}
	return more, err
}

// pass reports whether all conditions are true.
func pass(x *exec, conds []*cond) (bool, error) {
	for _, k := range conds {
		v, err := k.eval(x)
		if err != nil || v != isTrue {
			return false, err
		}
	}
	return true, nil
}
