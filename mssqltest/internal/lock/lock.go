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

// The modes. Key-range modes apply only to keys and rows, schema and intent modes to all other resources.
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

	// The results of combining a key-range lock with another lock of its owner. They are held, seldom requested.
	RangeIS
	RangeIU
	RangeIX
	RangeXS
	RangeXU
)

// Resource names a lockable resource: an object (Key and Index empty), an index key or row (Key set), or an application
// resource (App set).
type Resource struct {
	Object uint32
	Index  uint16 // 0 heap, 1 clustered, 2 and up secondary
	Key    string // encoded key or row id
	App    string
}

// Wait is what a request does when the lock is not free. The zero value fails immediately with 1222.
type Wait struct {
	Skip    bool          // do not wait: Lock returns ErrBusy (READPAST)
	Timeout time.Duration // negative waits permanently; 0 fails immediately with 1222
}

// Manager grants locks. Safe for concurrent use.
type Manager interface {
	// NewOwner returns the holder of one transaction's locks.
	NewOwner(session int, deadlockPriority int) Owner
	// Snapshot lists granted and waiting requests, for tests and sys.dm_tran_locks.
	Snapshot() []Info
	// Escalations returns the number of escalations since the start.
	Escalations() int
}

// Owner holds the locks of one transaction. Its methods are called by one goroutine at a time.
type Owner interface {
	// Lock acquires mode on r, converting a lock that is already held. It returns nil, ErrBusy (Wait.Skip), a
	// *sqltype.Error 1222 (timeout) or 1205 (victim), or ctx's error. A granted lock is counted: each Lock has one Unlock,
	// or ends with Release. ctx bounds only the wait: a free lock is granted without checking ctx. After an error the mode
	// held on r is unchanged; after 1205 the other transactions of the deadlock continue when this one calls Release.
	Lock(ctx context.Context, r Resource, mode Mode, w Wait) error
	// Unlock releases one Lock of that mode (a read lock at READ COMMITTED, a U lock on a row that did not qualify). Locks
	// of other modes stay held. Unlock of a row that Escalate took over does nothing.
	Unlock(r Resource, mode Mode)
	// Held returns the mode held on r: the union of all Locks on it.
	Held(r Resource) Mode
	// Escalate replaces all row and key locks on object by a table lock of mode, if that is granted immediately; otherwise
	// it reports false and changes nothing. The lock is X, for any mode, if mode would protect a row less than its own
	// lock did. From then on a Lock of a row that the table lock protects is granted without being recorded.
	Escalate(object uint32, mode Mode) bool
	// AddCost adds n to the cost of rolling back: log records or rows written. Of several possible deadlock victims the
	// cheapest is chosen.
	AddCost(n int)
	SetDeadlockPriority(p int)
	// Release releases all locks and resets the cost. The owner can then be used for another transaction.
	Release()
}

// Info is one line of Manager.Snapshot.
type Info struct {
	Session  int
	Resource Resource
	Mode     Mode
	Waiting  bool
}
