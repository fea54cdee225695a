package engine

import (
	"sort"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// sortItem is a row during a sort.
type sortItem struct {
	keys []sqltype.Value
	row  []slot
}

func compareNullable(a, b sqltype.Value) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return compareValues(a, b)
}

func sortItems(items []sortItem, order []orderKey) {
	sort.SliceStable(items, func(i, j int) bool {
		for k, o := range order {
			n := compareNullable(items[i].keys[k], items[j].keys[k])
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

// sorted reads all rows, sorts them and yields those within the limits. Rows outside the limits that were locked for a
// change release their locks.
func (b *block) sorted(x *exec, limit int64, yield func() (bool, error)) (bool, error) {
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
	wanted := items
	if limit >= 0 && limit < int64(len(items)) {
		wanted = items[:limit]
	}
	for _, it := range items[len(wanted):] {
		x.discard(it.row, b.uses)
	}
	for _, it := range wanted {
		x.restore(list, it.row)
		if more, err := yield(); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}
