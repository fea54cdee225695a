package lease

import "github.com/chanq/chanq/internal/base"

// RowState is the state of a message's row with respect to a lease.
type RowState uint8

const (
	RowHeld  RowState = iota // it has the lease's fence: it is locked, or was a moment ago
	RowTaken                 // it has another fence
	RowGone                  // there is no such row
)

// Cancels ends the context of a lease with ErrCancelled if its message was cancelled, and reports whether it did: the
// row is gone, the lease has time left, and its holder has not begun to settle it, which also removes the row. The
// caller then moves the lease to Lost.
func (r RowState) Cancels(l *Lease) bool {
	if r != RowGone || l.State() != Held || base.Now() >= l.Period.Deadline() {
		return false
	}
	l.ctx.lost(l.Home, ErrCancelled)
	return true
}

// Verdict is the result of a settle whose row its statement did not return.
type Verdict uint8

const (
	VerdictLocked  Verdict = iota // it can be stored later
	VerdictApplied                // by an earlier try
	VerdictInTx                   // the caller's commit acked the message
	VerdictLost
	VerdictHidden // see ErrHidden
)

// Err returns the outcome of the settle for every Verdict except VerdictLocked.
func (v Verdict) Err() error {
	return [...]error{VerdictApplied: nil, VerdictInTx: ErrSettled, VerdictLost: ErrLost, VerdictHidden: ErrHidden}[v]
}

// Verdict returns the result of a settle by the state of its row.
//
// Until the deadline no other consumer can claim the message. If a try might have been
// applied, a changed row is therefore this settle's work (or a cancellation by an
// operator). After the deadline it might be the work of another holder.
func (l *Lease) Verdict(row RowState) Verdict {
	maybe := l.Rare.Read().MaybeApplied
	unknown := maybe || l.Unknown
	ours := base.Now() < l.Period.Deadline()
	removes := l.Op == Ack || l.Op == Dead
	switch {
	case row == RowHeld:
		return VerdictLocked
	case maybe && l.Op != Ack && row == RowGone: // the transaction of the pipe might have acked it
		return VerdictHidden
	case unknown && ours && removes == (row == RowGone):
		return VerdictApplied
	case l.inTx && row == RowGone && !l.RolledBack.Load():
		return VerdictInTx
	case !unknown, l.Op == Ack && row == RowTaken:
		return VerdictLost
	}
	return VerdictHidden
}

// Seen is the result of a search for rows: package table implements it.
type Seen interface {
	Of(id [16]byte) (fence int64, live, locked bool)
}

// Row returns the state of the row of the lease's message.
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

// IDs returns the message IDs of leases.
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
	Unknown bool // it might be stored nevertheless
	Refused bool // the database refuses the new values of the row: the lease will expire
	Err     error
}

func (e *FailedError) Error() string { return e.Err.Error() }
func (e *FailedError) Unwrap() error { return e.Err }
