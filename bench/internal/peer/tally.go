package peer

import (
	"fmt"
	"sync/atomic"
	"time"
)

// tally records which messages were delivered, and when. Its deliver is the entire handler.
type tally struct {
	start time.Time
	at    []atomic.Int64 // nanoseconds after start, from 1; by message; 0: not yet
	again atomic.Int64   // deliveries after the first
	alien atomic.Int64   // deliveries of messages that were never sent
}

func newTally(n int) *tally { return &tally{at: make([]atomic.Int64, n)} }

func (t *tally) begin() { t.start = time.Now() }

func (t *tally) deliver(m Message) {
	switch {
	case m.N < 0 || m.N >= int64(len(t.at)):
		t.alien.Add(1)
	case !t.at[m.N].CompareAndSwap(0, max(1, int64(time.Since(t.start)))):
		t.again.Add(1)
	}
}

// first returns when the first message was delivered, after the beginning.
func (t *tally) first() time.Duration {
	var least int64
	for i := range t.at {
		if at := t.at[i].Load(); at > 0 && (least == 0 || at < least) {
			least = at
		}
	}
	return time.Duration(least)
}

// check returns an error if a message was not delivered, or one was delivered that was never sent.
func (t *tally) check() error {
	missing := 0
	for i := range t.at {
		if t.at[i].Load() == 0 {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d messages were never delivered, though all were settled", missing, len(t.at))
	}
	if alien := t.alien.Load(); alien > 0 {
		return fmt.Errorf("%d deliveries of messages that were never sent", alien)
	}
	return nil
}
