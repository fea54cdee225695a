package batch

import "time"

// Size bounds the items of the next statement, by what became of those before: it halves after a failure, and doubles
// after a success that was fast. The zero value is no bound. It is not safe for concurrent use.
type Size struct{ most int }

// Of returns the bound of a statement that has full items at most.
func (s *Size) Of(full int) int {
	if s.most == 0 {
		return full
	}
	return min(s.most, full)
}

// Failed notes a failure of n items.
func (s *Size) Failed(n int) { s.part(n, 2) }

// part has the next statement take that part of n items.
func (s *Size) part(n, of int) { s.most = max(1, n/of) }

// Worked notes that n items succeeded, in time took. Where that is more than half of patience, more
// items would take too long.
func (s *Size) Worked(n int, took, patience time.Duration) {
	switch {
	case s.most == 0 || n < s.most || took > patience/2:
	case s.most > sizeUnbounded/2:
		s.most = 0
	default:
		s.most *= 2
	}
}

// sizeUnbounded is a size that no statement has.
const sizeUnbounded = 1 << 12
