package batch

import "time"

// Size limits the items of the next statement by the outcomes of the previous ones. It halves after a failure, and
// doubles after a fast success. The zero value is no limit. It is not safe for concurrent use.
type Size struct{ most int }

// Of returns the limit for a statement of at most full items.
func (s *Size) Of(full int) int {
	if s.most == 0 {
		return full
	}
	return min(s.most, full)
}

// Failed records a failure of n items.
func (s *Size) Failed(n int) { s.part(n, 2) }

// part limits the next statement to n/of items.
func (s *Size) part(n, of int) { s.most = max(1, n/of) }

// Worked records that n items succeeded, in time took. If that is more than half of patience, more items would take
// too long.
func (s *Size) Worked(n int, took, patience time.Duration) {
	switch {
	case s.most == 0 || n < s.most || took > patience/2:
	case s.most > sizeUnbounded/2:
		s.most = 0
	default:
		s.most *= 2
	}
}

// sizeUnbounded is larger than any statement.
const sizeUnbounded = 1 << 12
