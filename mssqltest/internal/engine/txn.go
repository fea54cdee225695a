package engine

import "github.com/chanq/chanq/mssqltest/internal/lock"

// txn is one transaction: its locks and its undo records.
type txn struct {
	s     *Session
	id    uint64
	owner lock.Owner // nil for changes of table variables
	state *txState
	undo  []undoRecord
	wrote []oldVersions
	name  string // from BEGIN TRANSACTION
	saves []savepoint

	snapshot    uint64
	hasSnapshot bool
}

// savepoint is created by SAVE TRANSACTION: it has the number of undo records at that time.
type savepoint struct {
	name string
	mark int
}

// undoRecord undoes one step: a version pushed, an index entry added, or, if fn is set, anything else.
type undoRecord struct {
	table *table
	rec   *record
	index *index // of an entry; nil for a version
	key   string
	fn    func()
}

func (s *Session) newTxn() *txn {
	tx := &txn{s: s, id: s.e.nextTx.Add(1), state: &txState{}}
	tx.owner = s.e.locks.NewOwner(s.id, s.set.deadlockPriority)
	s.seen.tx.Store(tx.id)
	s.seen.level.Store(int64(s.set.level))
	s.note(&s.seen.began)
	return tx
}

// localTxn returns a transaction for changes of table variables: it commits with its statement.
func localTxn() *txn { return &txn{state: &txState{}} }

func (tx *txn) mark() int { return len(tx.undo) }

// rollbackTo undoes every step after mark; the locks stay.
func (tx *txn) rollbackTo(mark int) {
	for i := len(tx.undo) - 1; i >= mark; i-- {
		u := &tx.undo[i]
		if u.fn != nil {
			u.fn()
			continue
		}
		u.table.latch.Lock()
		if u.index == nil {
			u.table.pop(u.rec)
		} else {
			u.index.tree.remove(fullKey(u.key, u.rec.id))
		}
		u.table.latch.Unlock()
	}
	clear(tx.undo[mark:])
	tx.undo = tx.undo[:mark]
}

func (tx *txn) commit(db *database) {
	db.versions.commit(tx.state, tx.wrote)
	tx.end(db)
}

func (tx *txn) rollback(db *database) {
	tx.rollbackTo(0)
	tx.end(db)
}

func (tx *txn) end(db *database) {
	tx.undo, tx.wrote = nil, nil
	if tx.hasSnapshot {
		db.versions.release(tx.snapshot)
		tx.hasSnapshot = false
	}
	if tx.owner != nil {
		tx.owner.Release()
	}
	if tx.s != nil {
		tx.s.seen.began.Store(0)
		tx.s.seen.snapshot.Store(0)
	}
}

// view returns the snapshot of a SNAPSHOT transaction, taken at its first read.
func (tx *txn) view(db *database) uint64 {
	if !tx.hasSnapshot {
		tx.snapshot, tx.hasSnapshot = db.versions.snapshot(), true
		if tx.s != nil {
			tx.s.note(&tx.s.seen.snapshot)
		}
	}
	return tx.snapshot
}
