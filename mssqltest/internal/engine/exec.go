package engine

import (
	"context"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// exec is one run of one statement.
type exec struct {
	s     *Session
	f     *frame
	ctx   context.Context
	tx    *txn
	local *txn // carries changes of table variables
	now   time.Time

	slots    []slot
	spools   []*spool
	readings []reading

	cost    Cost
	held    map[*index]int // locks of this statement, for escalation
	atEnd   []rowLock      // released when the statement ends
	tables  []tableLock
	snap    uint64
	hasSnap bool
}

// slot is the current row of a range variable.
type slot struct {
	row   Row
	rec   *record
	ver   *version
	locks []rowLock // held only for this row; of a row to be changed
	taken bool      // a later step needs the locks
}

type rowLock struct {
	index *index
	key   string
	mode  lock.Mode
}

type tableLock struct {
	table *table
	mode  lock.Mode
}

// spool stores the rows of a part that is read several times.
type spool struct {
	rows [][]slot
}

func (x *exec) statementSnapshot() uint64 {
	if !x.hasSnap {
		x.snap, x.hasSnap = x.s.e.db.versions.snapshot(), true
	}
	return x.snap
}

// rowLimit is SET ROWCOUNT: the row after which a SELECT, INSERT, UPDATE or DELETE stops, unless its TOP is lower; -1
// is no limit.
func (x *exec) rowLimit() int64 {
	if x.s.set.rowCount > 0 {
		return x.s.set.rowCount
	}
	return -1
}

func (x *exec) unlock(locks []rowLock) {
	for _, l := range locks {
		x.unlockRow(l.index, l.key, l.mode)
	}
}

// open prepares the tables of a statement: permissions to read them, the way to read them, and the locks on the tables
// themselves.
func (x *exec) open(uses []*baseUse) error {
	x.readings = make([]reading, len(uses))
	for i, u := range uses {
		r, err := x.reading(u)
		if err != nil {
			return err
		}
		x.readings[i] = r
		if r.table == lock.None {
			continue
		}
		if err := x.lockTable(u.table, r.table, r.wait); err != nil {
			return err
		}
		if !r.keep && (r.table == lock.IS || r.table == lock.SchS || r.table == lock.S) {
			x.tables = append(x.tables, tableLock{u.table, r.table})
		}
	}
	return nil
}

// close releases the locks that the statement held.
func (x *exec) close() {
	if x.s.tx == x.tx { // otherwise a trigger has ended it
		x.unlock(x.atEnd)
		for _, l := range x.tables {
			x.tx.owner.Unlock(lock.Resource{Object: l.table.id}, l.mode)
		}
	}
	x.atEnd = nil
	x.tables = nil
	if x.hasSnap {
		x.s.e.db.versions.release(x.snap)
		x.hasSnap = false
	}
}
