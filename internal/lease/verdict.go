package lease

import "github.com/chanq/chanq/internal/base"

// RowState is how the row of a message stands to a lease.
type RowState uint8

const (
	RowHeld  RowState = iota // it has the lease's fence: it is locked, or was a moment ago
	RowTaken                 // it has another fence
	RowGone                  // there is no such row
)

// Verdict is what became of a settle that its statement did not return.
type Verdict uint8

const (
	VerdictLocked  Verdict = iota // it can be stored later
	VerdictApplied                // by an earlier try
	VerdictInTx                   // the caller's commit acked the message
	VerdictLost
	VerdictHidden // see ErrHidden
)

// Err is the outcome of the settle, unless it is VerdictLocked.
func (v Verdict) Err() error {
	return [...]error{VerdictApplied: nil, VerdictInTx: ErrSettled, VerdictLost: ErrLost, VerdictHidden: ErrHidden}[v]
}

// Verdict decides about a settle by the state of its row.
//
// While the lease runs no one else can claim the message: that it moved on was our
// doing, if a try may have been applied (or an operator's, who cancelled it). Later
// it may have been another holder's.
func (l *Lease) Verdict(row RowState) Verdict {
	unknown := l.MaybeApplied || l.Unknown
	ours := base.Now() < l.Period.Deadline()
	removes := l.Op == Ack || l.Op == Dead
	switch {
	case row == RowHeld:
		return VerdictLocked
	case unknown && ours && removes == (row == RowGone):
		return VerdictApplied
	case l.inTx && row == RowGone && !l.RolledBack.Load():
		return VerdictInTx
	case !unknown, l.Op == Ack && row == RowTaken:
		return VerdictLost
	}
	return VerdictHidden
}

// Seen is what a look at rows has found: package table has it.
type Seen interface {
	Of(id [16]byte) (fence int64, live, locked bool)
}

// Row returns how the row of the lease's message was found.
func (l *Lease) Row(s Seen) RowState {
	fence, live, locked := s.Of(l.Item.ID)
	switch {
	case locked, live && fence == l.Item.Fence:
		return RowHeld
	case live:
		return RowTaken
	}
	return RowGone
}

// IDs are those of leases.
func IDs(leases []*Lease) [][16]byte {
	ids := make([][16]byte, len(leases))
	for i, l := range leases {
		ids[i] = l.Item.ID
	}
	return ids
}

// FailedError is the outcome of a settle or an extension that is not known to be stored.
type FailedError struct {
	Op      string
	Unknown bool // it may be stored nevertheless
	Refused bool // the database refuses what the row would become: the lease runs out
	Err     error
}

func (e *FailedError) Error() string { return e.Err.Error() }
func (e *FailedError) Unwrap() error { return e.Err }
