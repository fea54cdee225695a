package batch

import (
	"context"
	"slices"
)

// Item is a pointer to a struct that embeds a Place.
type Item interface{ place() *Place }

// keyOf returns the key of an item; empty if it has none.
func (w *Writer[I]) keyOf(item I) string {
	if w.cfg.Key == nil {
		return ""
	}
	return w.cfg.Key(item)
}

// Place is the part of an item that the Writer uses. An item is in at most one Writer. It may be added again after
// its outcome, but not after Withdraw has taken it back.
type Place struct {
	// Set by the caller before Add.
	Size int   // in bytes, as Config.Bytes counts them
	Kind uint8 // items of different kinds never share a statement; indexes Config.Full

	// Set by the Writer, to be read by Write and Done.
	Unknown bool  // a failed statement might have written the item
	Locked  uint8 // how often its row was locked, up to lockPauses

	// Guarded by Writer.mu.
	state     state
	withdrawn bool   // by its caller: it is not written again
	seq       uint64 // how many items were added before

	// Used by the worker that has the item.
	blame uint64 // 1 more than the successes of the Writer when it first failed alone; 0: it has not
}

func (p *Place) place() *Place { return p }

// state is the state of an item. See the package comment.
type state uint8

const (
	over     state = iota // it has its outcome, or was withdrawn, or never added
	waiting               // in Writer.waiting
	held                  // held by a worker, in no statement at the moment
	writing               // held by a worker, in a statement
	deferred              // in Writer.deferred
	isolated              // in Writer.isolated
	behind                // in isolation.behind
)

// Urgency is how soon an item is to be written.
type Urgency uint8

const (
	Lazy    Urgency = iota // within Config.Linger
	Awaited                // also with half as many as the last batch had: a caller waits for it
	Now                    // with the next batch
)

// Outcome is the outcome of an item. With a nil Err the item is written. Unknown reports that an earlier statement,
// or the last one, might have written it despite Err.
type Outcome[I Item] struct {
	Item    I
	Err     error
	Unknown bool

	seq uint64
}

// Add adds an item. It blocks while Config.Capacity items wait. It returns ErrClosed after Close, or the cause of
// ctx's end.
func (w *Writer[I]) Add(ctx context.Context, item I, u Urgency) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := func() bool { return w.cfg.Capacity > 0 && w.waiting.live >= w.cfg.Capacity && !w.closed }
	if full() {
		defer context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.room.Broadcast()
		})()
	}
	for full() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.room.Wait()
	}
	if w.closed {
		return ErrClosed
	}
	before := w.waiting.live
	w.push(item)
	w.arrived(before, u)
	return nil
}

// AddAll adds n items together, in order. It never blocks: the caller bounds the number. After Close it returns
// ErrClosed and adds none. (It takes no iter.Seq, whose loop body would be allocated for each call.)
func (w *Writer[I]) AddAll(n int, item func(i int) I, u Urgency) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	before := w.waiting.live
	for i := range n {
		w.push(item(i))
	}
	w.arrived(before, u)
	return nil
}

// push appends an item. mu is held.
func (w *Writer[I]) push(item I) {
	p := item.place()
	switch {
	case p.state != over || p.withdrawn:
		panic("batch: an item is added that is in a Writer, or was withdrawn")
	case len(w.workers) > 1 && w.keyOf(item) != "":
		panic("batch: an item with a Key needs one worker")
	}
	*p = Place{Size: p.Size, Kind: p.Kind, seq: w.added, state: waiting}
	w.added++
	w.open++
	w.waiting.push(item)
}

// Withdraw takes back an item whose caller has given up, and reports whether it succeeded. If so, the item is
// certainly not written, and Done is not called for it. Otherwise a statement has it, or had it with an unknown
// outcome. The item is then not written again after that statement, and Done gets its outcome as usual. The cost
// does not depend on the number of waiting items.
func (w *Writer[I]) Withdraw(item I) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := item.place()
	if p.state == over {
		return false
	}
	p.withdrawn = true
	if p.state == writing || p.Unknown {
		if p.state == waiting {
			w.urgent = max(w.urgent, p.seq+1) // its outcome is due
		}
		w.notifyAll()
		return false
	}
	was := p.state
	p.state = over
	switch was {
	case waiting:
		w.waiting.drop(item)
		w.room.Broadcast()
	case deferred:
		w.deferred = slices.DeleteFunc(w.deferred, func(d deferral[I]) bool { return d.item.place() == p })
	case isolated:
		w.release(w.isolated[slices.IndexFunc(w.isolated, func(in *isolation[I]) bool { return in.item.place() == p })])
	case behind:
		in := w.keys[w.keyOf(item)]
		in.behind = slices.DeleteFunc(in.behind, func(o I) bool { return o.place() == p })
	}
	w.ended(p.seq)
	return true
}
