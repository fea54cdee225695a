package engine

import (
	"sort"

	"github.com/chanq/chanq/internal/testdb/mssqltest/sqltype"
)

// sortItem is a row on its way through a sort.
type sortItem struct {
	keys []sqltype.Value
	row  []slot
	out  Row
}

func compareNullable(a, b sqltype.Value, coll collation) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return compareValues(a, b, coll)
}

func sortItems(items []sortItem, order []orderKey) {
	sort.SliceStable(items, func(i, j int) bool {
		for k, o := range order {
			n := compareNullable(items[i].keys[k], items[j].keys[k], o.sc.coll)
			if o.desc {
				n = -n
			}
			if n != 0 {
				return n < 0
			}
		}
		return false
	})
}

func (b *block) sortKeys(x *exec) ([]sqltype.Value, error) {
	keys := make([]sqltype.Value, len(b.order))
	for i, o := range b.order {
		var err error
		if keys[i], err = o.sc.eval(x); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// sorted reads all rows, sorts them and yields those within the limits. Rows to
// be changed that fall outside give their locks back.
func (b *block) sorted(x *exec, skip, limit int64, yield func() (bool, error)) (bool, error) {
	var list []int
	for i := range maxSlots {
		if b.slots.has(i) {
			list = append(list, i)
		}
	}
	var items []sortItem
	if _, err := b.run(x, func() (bool, error) {
		keys, err := b.sortKeys(x)
		items = append(items, sortItem{keys: keys, row: x.save(list)})
		return true, err
	}); err != nil {
		return false, err
	}
	sortItems(items, b.order)
	first := min(skip, int64(len(items)))
	last := int64(len(items))
	if limit >= 0 {
		last = min(last, first+limit)
	}
	for i, it := range items {
		if int64(i) < first || int64(i) >= last {
			x.discard(it.row, b.uses)
		}
	}
	for _, it := range items[first:last] {
		x.restore(list, it.row)
		if more, err := yield(); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}

func (b *block) distinctRows(x *exec, project func() (Row, error), emit func(Row) (bool, error)) (bool, error) {
	skip, limit, err := b.window(x)
	if err != nil || limit == 0 {
		return true, err
	}
	seen := map[string]bool{}
	var items []sortItem
	if _, err := b.run(x, func() (bool, error) {
		row, err := project()
		if err != nil {
			return false, err
		}
		id := rowID(row, b.cols)
		if seen[id] {
			return true, nil
		}
		seen[id] = true
		keys, err := b.sortKeys(x)
		items = append(items, sortItem{keys: keys, out: row})
		return true, err
	}); err != nil {
		return false, err
	}
	sortItems(items, b.order)
	for i, it := range items {
		if int64(i) < skip {
			continue
		}
		if limit >= 0 && int64(i) >= skip+limit {
			break
		}
		if more, err := emit(it.out); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}

// rowKey orders computed rows by one column.
type rowKey struct {
	at   int
	desc bool
	coll collation
}

func sortedRows(rows func(*exec, func(Row) (bool, error)) (bool, error), keys []rowKey) func(*exec, func(Row) (bool, error)) (bool, error) {
	return func(x *exec, emit func(Row) (bool, error)) (bool, error) {
		var all []Row
		if _, err := rows(x, func(row Row) (bool, error) {
			all = append(all, row)
			return true, nil
		}); err != nil {
			return false, err
		}
		sort.SliceStable(all, func(i, j int) bool {
			for _, k := range keys {
				n := compareNullable(all[i][k.at], all[j][k.at], k.coll)
				if k.desc {
					n = -n
				}
				if n != 0 {
					return n < 0
				}
			}
			return false
		})
		for _, row := range all {
			if more, err := emit(row); err != nil || !more {
				return more, err
			}
		}
		return true, nil
	}
}
