package claim

import (
	"sync"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/table"
)

// Batch has leases in the order of their delivery, and the rows of their messages.
type Batch struct {
	Leases []*lease.Lease
	Rows   []table.Claimed
}

// Source supplies the leases for the channel of a consumer. Its methods are safe for concurrent use; one goroutine
// calls Next.
type Source interface {
	// Next returns up to n leases, which the caller delivers to readers, or none. The caller may use the rows until the
	// next call. Some of the leases might have expired.
	Next(n int) Batch
	// Waiting returns how many leases Next would return.
	Waiting() int
	// Ready has a value after Next has something to return.
	Ready() <-chan struct{}
	// Recalled has a value after leases that no reader has taken were recalled. Recall reports whether a lease is one
	// of them.
	Recalled() <-chan struct{}
	Recall(*lease.Lease) bool
	// Rest takes the waiting leases. The goroutine that calls Next calls it.
	Rest() []*lease.Lease
}

// buffer is the Source of a plain queue. Batches wait there until a goroutine has decoded the batches before them.
type buffer struct {
	ready chan struct{} // of capacity 1

	mu      sync.Mutex // guards what follows
	batches []batchOf
	lent    []table.Claimed // rows that the caller of Next is using, of a batch that has no more
	free    []table.Claimed // rows of no batch
}

// batchOf is a Batch with all of its rows, if they may be reused after it.
type batchOf struct {
	Batch
	whole []table.Claimed
}

func newBuffer() *buffer {
	return &buffer{ready: make(chan struct{}, 1)}
}

// put adds leases. whole may be reused for other rows after them; it is nil if it may not be reused.
func (b *buffer) put(batch Batch, whole []table.Claimed) {
	if len(batch.Leases) == 0 {
		return
	}
	b.mu.Lock()
	b.batches = append(b.batches, batchOf{batch, whole})
	b.mu.Unlock()
	base.Signal(b.ready)
}

// take returns a slice without rows: a used slice, if there is one, or nil.
func (b *buffer) take() []table.Claimed {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := b.free
	b.free = nil
	return rows
}

// reuse keeps a slice for other rows.
func (b *buffer) reuse(rows []table.Claimed) {
	clear(rows)
	b.mu.Lock()
	b.free = rows[:0]
	b.mu.Unlock()
}

func (b *buffer) Next(n int) Batch {
	b.mu.Lock()
	used := b.lent
	b.lent = nil
	var next Batch
	if len(b.batches) > 0 {
		first := &b.batches[0]
		n = min(n, len(first.Leases))
		next = Batch{first.Leases[:n], first.Rows[:n]}
		first.Leases, first.Rows = first.Leases[n:], first.Rows[n:]
		if len(first.Leases) == 0 {
			b.lent = first.whole
			b.batches[0] = batchOf{}
			b.batches = b.batches[1:]
		}
	}
	b.mu.Unlock()
	if used != nil {
		b.reuse(used)
	}
	return next
}

func (b *buffer) Waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.batches {
		n += len(b.batches[i].Leases)
	}
	return n
}

func (b *buffer) Ready() <-chan struct{}    { return b.ready }
func (b *buffer) Recalled() <-chan struct{} { return nil }
func (b *buffer) Recall(*lease.Lease) bool  { return false }

func (b *buffer) Rest() (rest []*lease.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.batches {
		rest = append(rest, batch.Leases...)
	}
	b.lent, b.free, b.batches = nil, nil, nil
	return rest
}
