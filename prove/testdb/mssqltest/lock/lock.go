// Package lock is the lock manager of the SQL Server emulator: modes,
// compatibility, FIFO waits, conversion, deadlock victims and lock timeouts,
// as SQL Server's transaction locking guide documents them.
package lock

import (
	"context"
	"time"
)

// Mode is a lock mode.
type Mode uint8

// The modes. Key-range modes apply to keys and rows only, schema and intent
// modes to everything else.
const (
	None Mode = iota
	SchS
	SchM
	IS
	IU
	IX
	S
	U
	SIX
	UIX
	SIU
	X
	RangeSS
	RangeSU
	RangeIN
	RangeXX

	// What a key-range lock becomes when it meets another lock of its owner.
	// They are held, seldom requested.
	RangeIS
	RangeIU
	RangeIX
	RangeXS
	RangeXU
)

// Resource names what is locked: an object (Key and Index empty), an index key
// or row (Key set), or an application resource (App set).
type Resource struct {
	Object uint32
	Index  uint16 // 0 heap, 1 clustered, 2 and up secondary
	Key    string // encoded key or row id
	App    string
}

// Wait is what a request does when the lock is not free. The zero value
// fails at once with 1222.
type Wait struct {
	Skip    bool          // do not wait: Lock returns ErrBusy (READPAST)
	Timeout time.Duration // negative waits permanently; 0 fails at once with 1222
}

// Manager grants locks. Safe for concurrent use.
type Manager interface {
	// NewOwner makes the holder of one transaction's locks.
	NewOwner(session int, deadlockPriority int) Owner
	// Snapshot lists granted and waiting requests, for tests and sys.dm_tran_locks.
	Snapshot() []Info
	// Escalations is the count of escalations since the start.
	Escalations() int
}

// Owner holds the locks of one transaction. Its methods are called by one
// goroutine at a time.
type Owner interface {
	// Lock acquires mode on r, converting a lock that is already held. It returns
	// nil, ErrBusy (Wait.Skip), a *sqltype.Error 1222 (timeout) or 1205 (victim), or
	// ctx's error. A granted lock is counted: each Lock has one Unlock, or ends
	// with Release. ctx bounds the wait only: a free lock is granted without a
	// look at it. After an error r is held as it was before; after 1205 the other
	// transactions of the deadlock continue when this one calls Release.
	Lock(ctx context.Context, r Resource, mode Mode, w Wait) error
	// Unlock releases one Lock of that mode (a read lock at READ COMMITTED, a U
	// lock on a row that did not qualify). What was locked in other modes stays
	// held. Unlock of a row that Escalate took over does nothing.
	Unlock(r Resource, mode Mode)
	// Held is the mode held on r: what all Locks on it add up to.
	Held(r Resource) Mode
	// Escalate replaces all row and key locks on object by a table lock of mode,
	// if that is granted at once; otherwise it reports false and changes nothing.
	// The lock is X, for any mode, if mode would protect a row less than its
	// own lock did. From then on a Lock of a row that the table lock protects is
	// granted without being recorded.
	Escalate(object uint32, mode Mode) bool
	// AddCost adds n to the cost of rolling back: log records or rows
	// written. Of several possible deadlock victims the cheapest is taken.
	AddCost(n int)
	SetDeadlockPriority(p int)
	// Release releases everything and resets the cost. The owner can then
	// serve a next transaction.
	Release()
}

// Info is one line of Manager.Snapshot.
type Info struct {
	Session  int
	Resource Resource
	Mode     Mode
	Waiting  bool
}
