package engine

import (
	"errors"

	"github.com/chanq/chanq/mssqltest/internal/lock"
)

// Lock escalation is tried when one statement holds this many locks of one index, and again after each further step.
const (
	escalateAt   = 5000
	escalateStep = 1250
)

// endOfIndex is the range after the last key.
const endOfIndex = "\xFF"

var tryOnly = lock.Wait{Skip: true}

func (x *exec) wait() lock.Wait { return lock.Wait{Timeout: x.s.set.lockTimeout} }

func resource(ix *index, key string) lock.Resource {
	return lock.Resource{Object: ix.table.id, Index: ix.id, Key: key}
}

// lockRow locks a row or key. It returns lock.ErrBusy only for w.Skip.
func (x *exec) lockRow(ix *index, key string, mode lock.Mode, w lock.Wait) error {
	if ix.table.private {
		return nil
	}
	if err := x.tx.owner.Lock(x.ctx, resource(ix, key), mode, w); err != nil {
		if errors.Is(err, lock.ErrBusy) {
			return lock.ErrBusy
		}
		return err
	}
	if mode != lock.RangeIN { // a test, released at once
		x.cost.Locks++
		x.escalation(ix, mode)
	}
	return nil
}

func (x *exec) unlockRow(ix *index, key string, mode lock.Mode) {
	if ix.table.private {
		return
	}
	x.tx.owner.Unlock(resource(ix, key), mode)
	if n := x.held[ix]; n > 0 && mode != lock.RangeIN {
		x.held[ix] = n - 1
	}
}

// escalation replaces the locks of a statement that holds too many on one index by a table lock, if no other session
// holds a conflicting lock.
func (x *exec) escalation(ix *index, mode lock.Mode) {
	if x.held == nil {
		x.held = map[*index]int{}
	}
	x.held[ix]++
	n := x.held[ix]
	if n <= escalateAt || (n-escalateAt)%escalateStep != 1 || !ix.table.escalate {
		return
	}
	whole := lock.X
	if mode == lock.S || mode == lock.RangeSS {
		whole = lock.S
	}
	if x.tx.owner.Escalate(ix.table.id, whole) {
		clear(x.held)
	}
}

// lockTable takes a lock on the table itself; READPAST never skips it.
func (x *exec) lockTable(t *table, mode lock.Mode, w lock.Wait) error {
	if t.private || mode == lock.None {
		return nil
	}
	return x.tx.owner.Lock(x.ctx, lock.Resource{Object: t.id}, mode, w)
}
