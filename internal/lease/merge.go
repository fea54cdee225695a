package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Readers are the readers of one channel that has the leases of several consumers: see package chanqshards.
type Readers struct{ took atomic.Int64 } // when a reader last took a lease, by the clock of base.Now

// Mover takes leases from the channel of one consumer, and offers them to Readers one at a time. A nil Mover has none.
type Mover struct {
	readers *Readers
	mu      sync.Mutex // guards offered
	offered [16]byte   // the message whose lease no reader has taken yet; zero: there is none
}

// moverKey is the key of a Mover in the context of its consumer.
type moverKey struct{}

// Mover returns a mover to the readers, and a context that has it, for its consumer.
func (r *Readers) Mover(ctx context.Context) (*Mover, context.Context) {
	m := &Mover{readers: r}
	return m, context.WithValue(ctx, moverKey{}, m)
}

// MoverOf returns the mover in the context of a consumer, or nil.
func MoverOf(ctx context.Context) *Mover {
	m, _ := ctx.Value(moverKey{}).(*Mover)
	return m
}

// Offer notes that the mover has a lease of the message, which no reader has taken yet.
func (m *Mover) Offer(id [16]byte) {
	m.mu.Lock()
	m.offered = id
	m.mu.Unlock()
}

// Taken notes that a reader has taken the offered lease.
func (m *Mover) Taken() {
	m.readers.took.Store(int64(base.Now()))
	m.mu.Lock()
	m.offered = [16]byte{}
	m.mu.Unlock()
}

// Waits returns the message whose lease waits for a reader, if there is one. last is when a reader last took a lease of
// any consumer, or zero.
func (m *Mover) Waits() (id [16]byte, offers bool, last time.Duration) {
	if m == nil {
		return id, false, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offered, m.offered != [16]byte{}, time.Duration(m.readers.took.Load())
}
