package engine

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Row has the values of one row. Rows are never modified.
type Row = []sqltype.Value

// record is one row over time. Index entries point to it, including those for its former keys, while a reader might
// need them.
type record struct {
	id   uint64
	head *version // guarded by the table's latch
}

// version is one state of a record. It is complete before it is linked and never changes, except that prev is cut.
type version struct {
	row  Row      // nil: deleted
	keys []string // by index.at; empty where the index does not have the row
	tx   *txState
	prev *version
}

// txState is what remains of a transaction in the versions that it made.
type txState struct {
	commit atomic.Uint64 // 0 until it commits
}

func (v *version) key(ix *index) string {
	if v == nil || ix.at >= len(v.keys) {
		return ""
	}
	return v.keys[ix.at]
}

// visible returns the version that a reader at snap sees.
func (v *version) visible(snap uint64, own *txState) *version {
	for ; v != nil; v = v.prev {
		if v.tx == own {
			return v
		}
		if at := v.tx.commit.Load(); at != 0 && at <= snap {
			return v
		}
	}
	return nil
}

// ridSize is the length of the suffix that an entry's full key has after the key that is locked.
const ridSize = 8

func fullKey(key string, id uint64) string {
	b := make([]byte, 0, len(key)+ridSize)
	return string(binary.BigEndian.AppendUint64(append(b, key...), id))
}

func lockKey(full string) string { return full[:len(full)-ridSize] }

// keyOf returns the key of row in ix, or "" if the filter excludes it.
func (ix *index) keyOf(row Row, id uint64) (string, error) {
	if ix.filter != nil {
		in, err := ix.filter.eval(&exec{slots: []slot{{row: row}}})
		if err != nil || in != isTrue {
			return "", err
		}
	}
	b := make([]byte, 0, 64)
	for _, c := range ix.cols {
		b = appendKey(b, row[c])
	}
	for _, c := range ix.tail {
		b = appendKey(b, row[c])
	}
	if ix.rid {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return string(b), nil
}

// keysOf returns the keys of row in every index.
func (t *table) keysOf(row Row, id uint64) ([]string, error) {
	keys := make([]string, len(t.indexes))
	for i, ix := range t.indexes {
		var err error
		if keys[i], err = ix.keyOf(row, id); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// push makes v the state of rec. The caller holds the latch.
func (t *table) push(rec *record, v *version) {
	was := rec.head != nil && rec.head.row != nil
	v.prev = rec.head
	rec.head = v
	switch is := v.row != nil; {
	case is && !was:
		t.live++
	case was && !is:
		t.live--
	}
}

// pop undoes push. The caller holds the latch.
func (t *table) pop(rec *record) {
	was := rec.head.row != nil
	rec.head = rec.head.prev
	switch is := rec.head != nil && rec.head.row != nil; {
	case is && !was:
		t.live++
	case was && !is:
		t.live--
	}
}

// collect deletes the versions of rec that no reader at horizon or later sees, and the index entries that only they
// had.
func (t *table) collect(rec *record, horizon uint64) {
	t.latch.Lock()
	defer t.latch.Unlock()
	last := rec.head
	for ; last != nil; last = last.prev {
		if at := last.tx.commit.Load(); at != 0 && at <= horizon {
			break
		}
	}
	if last == nil {
		return
	}
	gone := last.prev
	last.prev = nil
	for ; gone != nil; gone = gone.prev {
		for at, key := range gone.keys {
			if key == "" || at >= len(t.indexes) || rec.has(t.indexes[at], key) {
				continue
			}
			t.indexes[at].tree.remove(fullKey(key, rec.id))
		}
	}
}

// has reports whether a kept version of rec has this key.
func (r *record) has(ix *index, key string) bool {
	for v := r.head; v != nil; v = v.prev {
		if v.key(ix) == key {
			return true
		}
	}
	return false
}
