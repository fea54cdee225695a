package engine

import (
	"errors"
	"fmt"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// txOf returns the transaction that carries changes of t.
func (x *exec) txOf(t *table) *txn {
	if t.private {
		if x.local == nil {
			x.local = localTxn()
		}
		return x.local
	}
	return x.tx
}

// insertRow stores row, which has been checked for its types and NULLs.
func (x *exec) insertRow(t *table, row Row) (*record, error) {
	t.latch.Lock()
	t.nextRecord++
	rec := &record{id: t.nextRecord}
	t.latch.Unlock()
	keys, err := t.keysOf(row, rec.id)
	if err != nil {
		return nil, err
	}
	for at, ix := range t.indexes {
		if keys[at] == "" {
			continue
		}
		if err := x.enter(ix, keys[at], rec, row); err != nil {
			return nil, err
		}
	}
	x.link(t, rec, row, keys)
	return rec, nil
}

// updateRow sets new values of rec, which this transaction has locked in mode U.
func (x *exec) updateRow(t *table, rec *record, old *version, row Row) error {
	keys, err := t.keysOf(row, rec.id)
	if err != nil {
		return err
	}
	if err := x.lockForChange(t, old, row, keys); err != nil {
		return err
	}
	for at, ix := range t.indexes {
		if keys[at] == "" || keys[at] == old.key(ix) {
			continue
		}
		if err := x.enter(ix, keys[at], rec, row); err != nil {
			return err
		}
	}
	x.link(t, rec, row, keys)
	x.remember(t, rec)
	return nil
}

// deleteRow leaves a ghost until the transaction ends.
func (x *exec) deleteRow(t *table, rec *record, old *version) error {
	if err := x.lockForChange(t, old, nil, nil); err != nil {
		return err
	}
	x.link(t, rec, nil, nil)
	x.remember(t, rec)
	return nil
}

// lockForChange takes X locks on the row and on each index key that is removed.
func (x *exec) lockForChange(t *table, old *version, row Row, keys []string) error {
	for at, ix := range t.indexes {
		if old.key(ix) == "" {
			continue
		}
		if at > 0 && row != nil && keys[at] == old.key(ix) {
			continue
		}
		if err := x.lockRow(ix, old.key(ix), lock.X, x.wait()); err != nil {
			return err
		}
		if at > 0 {
			x.cost.KeysWritten++
		}
	}
	return nil
}

// enter adds an entry for rec to ix. It tests the range that contains the key, locks the key and looks for a duplicate,
// all at one moment under the latch; if a lock is not free it waits without the latch and starts again.
func (x *exec) enter(ix *index, key string, rec *record, row Row) error {
	t := ix.table
	full := fullKey(key, rec.id)
	locked := false
	for {
		t.latch.Lock()
		after := ix.following(key)
		if len(ix.cols) > 0 {
			err := x.lockRow(ix, after, lock.RangeIN, tryOnly)
			if errors.Is(err, lock.ErrBusy) {
				t.latch.Unlock()
				if err = x.lockRow(ix, after, lock.RangeIN, x.wait()); err == nil {
					x.unlockRow(ix, after, lock.RangeIN)
					continue
				}
				return err
			}
			if err != nil {
				t.latch.Unlock()
				return err
			}
		}
		free := func() {
			if len(ix.cols) > 0 {
				x.unlockRow(ix, after, lock.RangeIN)
			}
		}
		if !locked {
			err := x.lockRow(ix, key, lock.X, tryOnly)
			if errors.Is(err, lock.ErrBusy) {
				t.latch.Unlock()
				free()
				if err = x.lockRow(ix, key, lock.X, x.wait()); err == nil {
					locked = true
					continue
				}
				return err
			}
			if err != nil {
				t.latch.Unlock()
				free()
				return err
			}
			locked = true
		}
		if ix.unique && ix.taken(key, rec) {
			t.latch.Unlock()
			free()
			x.unlockRow(ix, key, lock.X)
			return errDuplicateKey(t, ix, ix.describe(row))
		}
		if ix.tree.put(full, rec) {
			tx := x.txOf(t)
			tx.undo = append(tx.undo, undoRecord{table: t, rec: rec, index: ix, key: key})
			if ix.at > 0 {
				x.cost.KeysWritten++
			}
		}
		t.latch.Unlock()
		free()
		return nil
	}
}

// following returns the key after key, which guards the range that contains key. The caller holds the latch.
func (ix *index) following(key string) string {
	c := cursor{t: ix.tree}
	full, rec := c.after(key+"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", false)
	if rec == nil {
		return endOfIndex
	}
	return lockKey(full)
}

// taken reports whether a row other than rec has the key now. The caller holds the latch and the key's lock, so that
// the answer is final.
func (ix *index) taken(key string, rec *record) bool {
	c := cursor{t: ix.tree}
	for full, r := c.after(key, true); r != nil && lockKey(full) == key; full, r = c.after(full, false) {
		if r != rec && r.head != nil && r.head.row != nil && r.head.key(ix) == key {
			return true
		}
	}
	return false
}

// describe returns the key as errors 2601 and 2627 write it.
func (ix *index) describe(row Row) string {
	s := ""
	for i, c := range ix.cols {
		if i > 0 {
			s += ", "
		}
		s += display(row[c], ix.table.cols[c].typ)
	}
	return s
}

func display(v sqltype.Value, t sqltype.Type) string {
	if v == nil {
		return "<NULL>"
	}
	if b, ok := v.([]byte); ok {
		s, _ := toText(b, t, 1)
		if len(s) > 2 {
			s = "0x" + lowerHex(s[2:])
		}
		return s
	}
	s, err := toText(v, t, 0)
	if err != nil {
		return fmt.Sprint(v)
	}
	return s
}

func lowerHex(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'F' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func (x *exec) link(t *table, rec *record, row Row, keys []string) {
	tx := x.txOf(t)
	v := &version{row: row, keys: keys, tx: tx.state}
	t.latch.Lock()
	t.push(rec, v)
	t.latch.Unlock()
	tx.undo = append(tx.undo, undoRecord{table: t, rec: rec})
	if tx.owner != nil {
		tx.owner.AddCost(1)
	}
}

func (x *exec) remember(t *table, rec *record) {
	tx := x.txOf(t)
	tx.wrote = append(tx.wrote, oldVersions{table: t, rec: rec})
}
