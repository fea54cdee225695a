package chanqshards

import (
	"sync"
	"time"
)

// spread chooses the shard for messages that may go to any shard. It is safe for concurrent use.
type spread struct {
	mu    sync.Mutex // guards the fields below
	last  int
	left  int       // single messages that may still go to the same shard
	until time.Time // the latest time for them
}

// least chooses the shard with the least load; among equal ones the next in turn.
func (s *spread) least(loads []int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := (s.last + 1) % len(loads)
	for i := range loads {
		if i = (s.last + 1 + i) % len(loads); loads[i] < loads[best] {
			best = i
		}
	}
	s.last = best
	return best
}

// again reports whether a single message may go to the shard of the previous one, so that messages sent together share a statement.
func (s *spread) again(now time.Time) (shard int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	return s.last, s.left >= 0 && now.Before(s.until)
}

// begin allows this number of single messages to follow, until the given time.
func (s *spread) begin(messages int, until time.Time) {
	s.mu.Lock()
	s.left, s.until = messages, until
	s.mu.Unlock()
}
