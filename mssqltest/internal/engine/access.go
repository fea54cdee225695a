package engine

import (
	"slices"
	"strings"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// access is the path to the rows of one table: which index, and the range in it.
type access struct {
	use   *baseUse
	at    int // position of the index in table.indexes: each table variable has its own indexes
	index *index

	eq     []*scalar // the leading key columns are equal to these
	isNull []bool    // where eq means IS NULL
	list   []*scalar // the column after eq is one of these
	lo, hi *limit    // the column after eq, or after list, is between these
	unique bool      // at most one row

	backward bool
	early    []*cond // decided by the key: before the row is looked up
	late     []*cond
	lookup   bool // the row itself is read (and locked) as well
}

type limit struct {
	val       *scalar
	inclusive bool
}

// seeks reports whether the access searches rather than scans.
func (a *access) seeks() bool { return len(a.eq) > 0 || a.list != nil || a.lo != nil || a.hi != nil }

// orderKey is one element of ORDER BY.
type orderKey struct {
	sc   *scalar
	desc bool
}

// access chooses the index for u: as many leading columns bound by equality as possible, then a range, then an order that avoids the sort.
func (c *compiler) access(u *baseUse, conds []*cond, bound slotSet, order []orderKey) (*access, int, error) {
	var best *access
	bestScore := -1
	t := u.table
	hinted := u.hints.index
	for at, ix := range t.indexes {
		if hinted != "" && !ix.hintedAs(hinted) {
			continue
		}
		if !ix.filterImplied(conds, u.slot) {
			continue
		}
		a, score := ix.search(u, conds, bound)
		a.at = at
		if u.hints.forceSeek && !a.seeks() {
			continue
		}
		covered := ix.covers(u)
		if at == 0 || covered {
			score += 3
		}
		if len(order) > 0 && a.satisfies(order, u) {
			score += 40
		} else if at > 0 && !a.seeks() && hinted == "" && !covered {
			continue
		}
		if score > bestScore {
			best, bestScore = a, score
		}
	}
	if best == nil {
		if hinted != "" && t.indexNamed(hinted) == nil && hinted != "0" && hinted != "1" {
			return nil, 0, sqlError(308, "Index '%s' on table '%s' (specified in the FROM clause) does not exist.", hinted, t.qualified())
		}
		return nil, 0, errNoPlan()
	}
	return best, bestScore, nil
}

func (ix *index) hintedAs(hint string) bool {
	return strings.EqualFold(ix.name, hint) || hint == "0" && ix.id <= 1 || hint == "1" && ix.id == 1
}

// filterImplied reports whether every row that the statement needs is in a filtered index: each part of the filter is in the statement in
// the same form.
func (ix *index) filterImplied(conds []*cond, slot int) bool {
	if ix.filter == nil {
		return true
	}
	for _, part := range strings.Split(ix.filterText, " and ") {
		if !slices.ContainsFunc(conds, func(k *cond) bool { return k.text == part && part != "" && k.refs.has(slot) }) {
			return false
		}
	}
	return true
}

// keyCols are the columns of the complete key.
func (ix *index) keyCols() []int { return append(slices.Clone(ix.cols), ix.tail...) }

// covers reports whether the index has all columns that the statement needs of u.
// Rows to be changed are always looked up.
func (ix *index) covers(u *baseUse) bool { return ix.at == 0 || !u.target && ix.finds(u) }

// finds reports whether the index has all columns by which the statement finds the rows of u. The change then locks the row, and READPAST
// has no effect on that lock ("Table hints (Transact-SQL)", READPAST).
func (ix *index) finds(u *baseUse) bool {
	for c := range u.need {
		if !ix.holds(c) {
			return false
		}
	}
	return true
}

func (ix *index) holds(c int) bool {
	return ix.at == 0 || slices.Contains(ix.cols, c) || slices.Contains(ix.tail, c) ||
		slices.Contains(ix.table.base().cols, c)
}

// search binds the key's columns to their conditions.
func (ix *index) search(u *baseUse, conds []*cond, bound slotSet) (*access, int) {
	a := &access{use: u, index: ix}
	score := 0
	keys := ix.keyCols()
	for i, col := range keys {
		typ := ix.table.cols[col].typ
		eq, lo, hi, list := find(u, col, typ, conds, bound)
		if a.list != nil {
			eq, list = nil, nil
		}
		if eq != nil {
			a.eq = append(a.eq, eq.val)
			a.isNull = append(a.isNull, eq.op == "null")
			score += 100
			if i+1 == len(ix.cols) && ix.unique {
				a.unique = true
				score += 1000
				break
			}
			continue
		}
		if list != nil {
			for _, v := range list.list {
				a.list = append(a.list, seekable(v, typ))
			}
			score += 60
			continue // each value of the list has a separate range in the next column
		}
		if lo != nil {
			a.lo = &limit{lo.val, lo.op == ">="}
			score += 30
		}
		if hi != nil {
			a.hi = &limit{hi.val, hi.op == "<="}
			score += 30
		}
		break
	}
	return a, score
}

// find returns the conditions on one column that use only slots that are already bound.
func find(u *baseUse, col int, typ sqltype.Type, conds []*cond, bound slotSet) (eq, lo, hi, list *sarg) {
	for _, k := range conds {
		for i := range k.args {
			s := k.args[i]
			if s.col != (colUse{u.slot, col}) {
				continue
			}
			if s.val != nil {
				v := seekable(s.val, typ)
				if v == nil || !v.refs.within(bound) {
					continue
				}
				s.val = v
			}
			switch s.op {
			case "=", "null":
				if eq == nil {
					eq = &s
				}
			case "<", "<=":
				if hi == nil {
					hi = &s
				}
			case ">", ">=":
				if lo == nil {
					lo = &s
				}
			case "in":
				ok := true
				for _, v := range s.list {
					ok = ok && seekable(v, typ) != nil && v.refs.within(bound)
				}
				if ok && list == nil {
					list = &s
				}
			}
		}
	}
	return eq, lo, hi, list
}

// seekable returns v as a value to search a column of type t for, or nil if the column itself would have to be converted.
func seekable(v *scalar, t sqltype.Type) *scalar {
	switch {
	case v.typ.Kind == sqltype.Invalid, sameClass(v.typ.Kind, t.Kind):
		return v
	case precedence[t.Kind] > precedence[v.typ.Kind]:
		return cast(v, t, 0)
	}
	return nil
}

// satisfies reports whether the rows are in the requested order, and sets the
// direction.
func (a *access) satisfies(order []orderKey, u *baseUse) bool {
	if a.unique {
		return true
	}
	if a.list != nil {
		return false
	}
	ix := a.index
	keys := ix.keyCols()
	fixed := map[int]bool{}
	for i := range a.eq {
		fixed[keys[i]] = true
	}
	at := len(a.eq)
	direction := 0
	for _, o := range order {
		if o.sc.col == nil || o.sc.col.slot != u.slot {
			return false
		}
		col := o.sc.col.col
		if fixed[col] {
			continue
		}
		if at >= len(keys) {
			// The key is complete: further elements cannot change the order.
			return ix.unique || ix.at > 0
		}
		if keys[at] != col {
			return false
		}
		want := 1
		if o.desc {
			want = -1
		}
		if direction != 0 && direction != want {
			return false
		}
		direction = want
		fixed[col] = true
		at++
		if ix.at == 0 && ix.unique && at == len(keys) {
			break
		}
	}
	a.backward = direction == -1
	return true
}

// place divides the conditions into those that the key decides and the rest.
func (a *access) place(conds []*cond) {
	slot := a.use.slot
	for _, k := range conds {
		early := a.index.at > 0
		for _, u := range k.cols {
			if u.slot == slot && !a.index.holds(u.col) {
				early = false
			}
		}
		if early {
			a.early = append(a.early, k)
		} else {
			a.late = append(a.late, k)
		}
	}
}
