package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// isolation is a transaction isolation level, weakest first.
type isolation uint8

const (
	readUncommitted isolation = iota + 1
	readCommitted
	repeatableRead
	serializable
	snapshot
)

// tableHints are the hints of WITH on one table.
type tableHints struct {
	level             isolation // 0: the session's
	readCommittedLock bool
	updLock, xLock    bool
	readPast          bool
	tabLock, tabLockX bool
	rowLock           bool
	forceSeek         bool
	index             string

	granularity, isolations int // how many hints of each group
}

func (c *compiler) tableHints(list []ast.TableHintType) (h tableHints, err error) {
	for _, hint := range list {
		switch hint := hint.(type) {
		case *ast.IndexTableHint:
			if len(hint.IndexValues) != 1 {
				return h, errUnsupported("INDEX hint of several indexes")
			}
			h.index = unquote(hint.IndexValues[0].Value)
		case *ast.ForceSeekTableHint:
			h.forceSeek = true
			if hint.IndexValue != nil {
				return h, errUnsupported("FORCESEEK with parameters")
			}
		case *ast.TableHint:
			if err := h.add(hint.HintKind); err != nil {
				return h, err
			}
		default:
			return h, errUnsupported(fmt.Sprintf("%T", hint))
		}
	}
	if h.rowLock && !h.readCommittedLock {
		h.granularity++
	}
	if h.granularity > 1 || h.isolations > 1 { // "Table hints (Transact-SQL)", Remarks
		return h, sqlError(1047, "Conflicting locking hints specified.")
	}
	return h, nil
}

// unquote removes the brackets that the parser has left around a name.
func unquote(name string) string {
	if len(name) > 1 && name[0] == '[' && name[len(name)-1] == ']' {
		return strings.ReplaceAll(name[1:len(name)-1], "]]", "]")
	}
	return name
}

func (h *tableHints) add(kind string) error {
	switch strings.ToUpper(kind) {
	case "NOLOCK", "READUNCOMMITTED":
		h.granularity++
		h.isolations++
	case "ROWLOCK": // with READCOMMITTEDLOCK, of the same group, the server accepts it: Rebus sends both
		h.rowLock = true
	case "READCOMMITTEDLOCK", "TABLOCK", "TABLOCKX":
		h.granularity++
	case "HOLDLOCK", "READCOMMITTED", "REPEATABLEREAD", "SERIALIZABLE":
		h.isolations++
	}
	switch strings.ToUpper(kind) {
	case "ROWLOCK":
	case "NOLOCK", "READUNCOMMITTED":
		h.level = readUncommitted
	case "READCOMMITTED":
		h.level = readCommitted
	case "READCOMMITTEDLOCK":
		h.level, h.readCommittedLock = readCommitted, true
	case "REPEATABLEREAD":
		h.level = repeatableRead
	case "HOLDLOCK", "SERIALIZABLE":
		h.level = serializable
	case "UPDLOCK":
		h.updLock = true
	case "XLOCK":
		h.xLock = true
	case "READPAST":
		h.readPast = true
	case "TABLOCK":
		h.tabLock = true
	case "TABLOCKX":
		h.tabLockX = true
	case "FORCESEEK":
		h.forceSeek = true
	default:
		return sqlError(321, "\"%s\" is not a recognized table hints option. If it is intended as a parameter to a table-valued "+
			"function or to the CHANGETABLE function, ensure that your database compatibility mode is set to 90.", kind)
	}
	return nil
}

// merge adds the hints of an outer reference: those of a view or an alias.
func (h tableHints) merge(o tableHints) tableHints {
	if o.level != 0 {
		h.level = o.level
	}
	if o.index != "" {
		h.index = o.index
	}
	h.readCommittedLock = h.readCommittedLock || o.readCommittedLock
	h.updLock = h.updLock || o.updLock
	h.xLock = h.xLock || o.xLock
	h.readPast = h.readPast || o.readPast
	h.tabLock = h.tabLock || o.tabLock
	h.tabLockX = h.tabLockX || o.tabLockX
	h.forceSeek = h.forceSeek || o.forceSeek
	return h
}

// reading is how a statement reads one of its tables: which locks, for how long, or which row versions.
type reading struct {
	table    lock.Mode // on the table, for the transaction if keepTable
	row      lock.Mode // on keys and rows; None: no locks
	ranges   bool      // on the ranges between keys as well
	keep     bool      // to the end of the transaction
	versions bool
	snap     uint64
	conflict bool // SNAPSHOT: error 3960 for a row changed since
	readPast bool
	wait     lock.Wait
}

// reading follows the rules of the locking guide: isolation level, hints and whether the rows are to be changed.
func (x *exec) reading(u *baseUse) (reading, error) {
	r := reading{wait: x.wait()}
	h := u.hints
	if u.table.private {
		return r, nil
	}
	level := x.s.set.level
	locks := h.updLock || h.xLock
	if h.level != 0 && !(locks && h.level == readCommitted) { // they make it ineffective ("Table hints (Transact-SQL)", UPDLOCK)
		level = h.level
	}
	if h.readPast && level != readCommitted && level != repeatableRead {
		return r, errReadPast()
	}
	if level == snapshot && !x.s.e.db.allowSnapshot.Load() {
		return r, sqlError(3952, "Snapshot isolation transaction failed accessing database '%s' because snapshot isolation is "+
			"not allowed in this database. Use ALTER DATABASE to allow snapshot isolation.", x.s.e.db.name)
	}
	r.readPast = h.readPast
	r.row = lock.S
	switch {
	case h.tabLockX, h.xLock:
		r.row = lock.X
	case u.target || h.updLock:
		r.row = lock.U
	}
	r.keep = level >= repeatableRead && level != snapshot || locks
	r.ranges = level == serializable
	if r.row == lock.S {
		switch {
		case level == readUncommitted:
			r.row, r.table = lock.None, lock.SchS
			return r, nil
		case level == snapshot:
			r.row, r.table, r.versions = lock.None, lock.SchS, true
			r.snap = x.tx.view(x.s.e.db)
			return r, nil
		case level == readCommitted && x.s.e.db.rcsi.Load() && !h.readCommittedLock && !h.tabLock:
			r.row, r.table, r.versions = lock.None, lock.SchS, true
			r.snap = x.statementSnapshot()
			return r, nil
		}
	}
	if level == snapshot {
		r.conflict, r.snap = true, x.tx.view(x.s.e.db)
	}
	heap := len(u.table.base().cols) == 0
	switch {
	case h.tabLockX:
		r.table, r.row = lock.X, lock.None
	case h.tabLock || r.ranges && heap:
		if r.table = lock.S; r.row != lock.S {
			r.table = lock.X
		}
		r.row, r.ranges = lock.None, false
	case r.row == lock.S:
		r.table = lock.IS
	default:
		r.table = lock.IX
	}
	if u.target || h.tabLockX {
		r.keep = r.keep || r.row == lock.None
	}
	return r, nil
}

// rangeMode returns the mode that locks a key and the range before it.
func rangeMode(m lock.Mode) lock.Mode {
	switch m {
	case lock.U:
		return lock.RangeSU
	case lock.X:
		return lock.RangeXX
	default:
		return lock.RangeSS
	}
}

// checkTarget refuses hints that a statement's target cannot have.
func checkTarget(h tableHints, inFrom, insert bool) error {
	switch {
	case h.level == readUncommitted:
		return sqlError(1065, "The NOLOCK and READUNCOMMITTED lock hints are not allowed for target tables of INSERT, UPDATE, DELETE or MERGE statements.")
	case insert && h.readCommittedLock:
		return sqlError(4140, "The READCOMMITTEDLOCK lock hint is not allowed on the target table of an INSERT statement.")
	case insert && h.readPast:
		return sqlError(4140, "The READPAST lock hint is not allowed on the target table of an INSERT statement.")
	case !inFrom && h.index != "":
		return sqlError(1069, "Index hints are only allowed in a FROM or OPTION clause.")
	}
	return nil
}
