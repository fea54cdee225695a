package chanq

import (
	"context"
	"sync"
)

// quota is how many messages the shards of a queue may change together, each a part at a time. One
// that does not answer keeps the part that it has taken, since that may be changed yet. It is safe for
// concurrent use; nil is no bound.
type quota struct {
	shards int

	mu   sync.Mutex // guards what follows
	left int
	out  int           // taken, and not known to be used or not
	back chan struct{} // closed when some of it is known
}

// newQuota is one of limit; 0 is no bound.
func newQuota(limit, shards int) *quota {
	if limit == 0 {
		return nil
	}
	return &quota{shards: shards, left: limit, back: make(chan struct{})}
}

// take takes up to most: a fair part of what is left, so that the others have some as well. Where
// others have taken all, it waits for what they do not use. It returns 0 when all is used, or ctx
// ends.
func (u *quota) take(ctx context.Context, most int) int {
	if u == nil {
		return most
	}
	for {
		u.mu.Lock()
		n := min(most, (u.left+u.shards-1)/u.shards)
		u.left -= n
		u.out += n
		wait, back := n == 0 && u.out > 0, u.back
		u.mu.Unlock()
		if !wait {
			return n
		}
		select {
		case <-back:
		case <-ctx.Done():
			return 0
		}
	}
}

// used is told how many of the n that were taken are used.
func (u *quota) used(n, used int) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.out -= n
	u.left += n - used
	close(u.back)
	u.back = make(chan struct{})
}
