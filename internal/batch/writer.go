package batch

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// ErrClosed is the error of an item that is added after Close.
var ErrClosed = errors.New("chanq: closed")

// ErrWithdrawn is the outcome of an item that Withdraw could not take back, and that no later statement has written.
var ErrWithdrawn = errors.New("the caller has given up")

// Config configures a Writer.
type Config[I Item] struct {
	// Full is the maximum number of items in one statement, per Place.Kind. A batch has as many as the largest.
	Full []int
	// Bytes is the sum of Place.Size that makes a batch due. 0: none does.
	Bytes int
	// Cut returns how many of the first items may share a statement, at least one. It is called with the Writer's lock
	// held. nil: all items of one kind may.
	Cut func([]I) int
	// Key returns the key of an item. Items of one key that is not empty are written in the order of Add, by one
	// worker. nil: no item has one.
	Key func(I) string
	// Linger is the maximum time that an item waits for others to share its batch.
	Linger time.Duration
	// Capacity is how many items may wait before Add blocks. 0: no bound.
	Capacity int
	// Moment is how long a batch that is being written keeps the other workers from the next one. Batches then grow
	// with the time that a statement takes, and a hanging one does not block later items. 0: the others continue
	// immediately.
	Moment time.Duration
	// InTurn means that the order of all items matters, and not only that of items with one key. An item without a key
	// is then isolated only after another one was written. There must be one kind and one worker, and Absent must be
	// nil.
	InTurn bool
	// Longest is the maximum timeout of a statement of an isolated item, which doubles each time that it is exceeded.
	// 0: 2 minutes.
	Longest time.Duration
	// Workers is how many batches may be written at the same time.
	Workers int
	// Loop classifies errors and reports the availability of the database. Its Timeout is the timeout of one statement.
	Loop Loop
	// Isolated is called when the number of isolated items has changed, with the Writer's lock held: it must not wait.
	// After an increase err is the error of the last one, otherwise nil. nil: it is not called.
	Isolated func(items int, err error)

	// Write writes items of one kind, in one statement or transaction, and returns the items that are certainly
	// written, even with an error. The error ErrNotAsked means that no statement was needed. With skipLocked it leaves
	// out items whose rows are locked. It may reorder the slice unless InTurn is set, and must not keep it.
	Write func(ctx context.Context, items []I, skipLocked bool) (written []I, err error)
	// Absent determines the outcomes of items that Write neither returned nor failed for. Items without an outcome are
	// locked, and written later. nil: Write without an error has written all.
	Absent func(ctx context.Context, items []I) ([]Outcome[I], error)
	// Done gets the outcomes: once for each kind of a batch, unless a statement fails, and each item's exactly once. It
	// is called without a lock, by several goroutines concurrently. It may call AddAll, and must neither wait nor keep
	// the slice. began is when the batch left the backlog.
	Done func(began time.Time, outcomes []Outcome[I])
}

// Writer writes items in batches: see the package comment.
type Writer[I Item] struct {
	cfg    Config[I]
	most   int             // maximum number of items of a batch
	ctx    context.Context // of all statements; ends with GiveUp
	cancel context.CancelCauseFunc
	wake   chan struct{} // for one worker: a batch might be due
	beck   chan struct{} // for the goroutine of isolated items

	// mu guards the fields below, the state of all Places, and the fields of workers whose comments name it. Nothing
	// waits while mu is held, except for the conditions below. Of the caller's functions only Cut, Isolated, and those
	// given to AddAll are called.
	mu        sync.Mutex
	room      sync.Cond // Add may continue
	doneOver  sync.Cond // doneCalls became 0
	waiting   queue[I]
	deferred  []deferral[I]
	isolated  []*isolation[I]
	keys      map[string]*isolation[I] // of items with a Key
	workers   []*worker[I]
	alone     *worker[I] // of isolated items
	groups    Size       // of new batches: timeouts reduce it
	since     time.Time  // when the oldest waiting item was added, or the last batch left
	former    int        // size of the previous batch
	idle      int        // workers that wait for a batch, and for no other worker
	successes uint64     // count of statements
	added     uint64     // count of items, and seq of the next one
	open      int        // items without an outcome
	doneCalls int        // running calls of Done
	urgent    uint64     // items below this seq are due
	awaited   uint64     // a caller waits for items below this seq
	flushes   []*flush
	closed    bool
}

// deferral is an item whose row is locked, not to be written before at.
type deferral[I Item] struct {
	item I
	at   time.Time
}

// flush waits until the left items below a seq have their outcomes.
type flush struct {
	below uint64
	left  int
	done  chan struct{}
}

// New makes a Writer. Items may be added before Run. It panics if cfg contradicts itself.
func New[I Item](cfg Config[I]) *Writer[I] {
	if cfg.InTurn && (len(cfg.Full) > 1 || cfg.Absent != nil || cfg.Workers > 1) {
		panic("batch: InTurn needs one kind, one worker and no Absent")
	}
	if cfg.Longest == 0 {
		cfg.Longest = longestTimeout
	}
	w := &Writer[I]{cfg: cfg, most: slices.Max(cfg.Full), wake: make(chan struct{}, 1), beck: make(chan struct{}, 1),
		keys: map[string]*isolation[I]{}}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.room.L, w.doneOver.L = &w.mu, &w.mu
	for range cfg.Workers {
		w.workers = append(w.workers, newWorker(w))
	}
	w.alone = newWorker(w)
	return w
}

func newWorker[I Item](w *Writer[I]) *worker[I] {
	return &worker[I]{writer: w, loop: w.cfg.Loop, timer: time.NewTimer(forever)}
}

// Run writes until the Writer is closed and every item has its outcome, or calls GiveUp when abandoned ends. It is to
// be called once.
func (w *Writer[I]) Run(abandoned context.Context) {
	var all base.Group
	gaveUp := make(chan struct{})
	stop := context.AfterFunc(abandoned, func() {
		defer close(gaveUp)
		w.GiveUp(context.Cause(abandoned))
	})
	for _, worker := range w.workers {
		all.Go(worker.run)
	}
	all.Go(w.alone.runIsolated)
	all.Wait()
	w.cancel(ErrClosed)
	if !stop() {
		<-gaveUp
	}
}

// Expedite shortens the linger of all items that were added before, because a caller waits for one of them.
func (w *Writer[I]) Expedite() {
	w.mu.Lock()
	w.awaited = max(w.awaited, w.added)
	w.mu.Unlock()
	base.Signal(w.wake)
}

// Drain disables lingering from now on.
func (w *Writer[I]) Drain() {
	w.mu.Lock()
	w.urgent = math.MaxUint64
	w.mu.Unlock()
	base.Signal(w.wake)
}

// Close refuses later items and ends lingering. It does not wait: Run ends when every item has its outcome.
func (w *Writer[I]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.close()
}

// close implements Close. mu is held.
func (w *Writer[I]) close() {
	w.closed, w.urgent = true, math.MaxUint64
	w.room.Broadcast()
	w.notifyAll()
}

// GiveUp closes the Writer, cancels the running statements, and returns when every item has its outcome. If an outcome
// is not known yet, Err is cause, joined with the last error of an isolated item. Items in a statement are Unknown.
// Done gets these outcomes in the order of Add. Run might last longer, until a driver returns. GiveUp must not be
// called by Done.
func (w *Writer[I]) GiveUp(cause error) {
	w.mu.Lock()
	w.close()
	var out []Outcome[I]
	end := func(item I, err error) {
		if p := item.place(); p.state != over { // an item might be in two of the places below
			out = append(out, Outcome[I]{Item: item, Err: err, Unknown: p.Unknown || p.state == writing})
			p.state = over
		}
	}
	for _, worker := range append(slices.Clone(w.workers), w.alone) {
		out = append(out, worker.out...)
		clear(worker.out)
		worker.out = worker.out[:0]
	}
	for _, item := range w.waiting.pop(nil, w.waiting.live) {
		end(item, cause)
	}
	for _, worker := range w.workers {
		for _, item := range worker.group {
			end(item, cause)
		}
	}
	for _, d := range w.deferred {
		end(d.item, cause)
	}
	for _, in := range w.isolated {
		end(in.item, errors.Join(cause, in.err))
		for _, item := range in.behind {
			end(item, cause)
		}
	}
	w.ending(out)
	slices.SortFunc(out, func(a, b Outcome[I]) int { return cmp.Compare(a.seq, b.seq) })
	w.cancel(cause) // with mu: no statement of these items begins
	w.mu.Unlock()
	w.callDone(time.Now(), out)
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.doneCalls > 0 {
		w.doneOver.Wait()
	}
}

// ending records that these outcomes are about to be passed to Done. mu is held; call callDone next.
func (w *Writer[I]) ending(out []Outcome[I]) {
	for i := range out {
		out[i].seq = out[i].Item.place().seq
	}
	w.doneCalls++
}

// callDone calls Done, and then wakes everything that waits for these outcomes.
func (w *Writer[I]) callDone(began time.Time, out []Outcome[I]) {
	if len(out) > 0 {
		w.cfg.Done(began, out)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range out {
		w.ended(out[i].seq)
	}
	if w.doneCalls--; w.doneCalls == 0 {
		w.doneOver.Broadcast()
	}
}

// ended counts an item that has its outcome. mu is held.
func (w *Writer[I]) ended(seq uint64) {
	w.open--
	if len(w.flushes) > 0 {
		w.flushes = slices.DeleteFunc(w.flushes, func(f *flush) bool {
			if seq < f.below {
				f.left--
			}
			if f.left == 0 {
				close(f.done)
			}
			return f.left == 0
		})
	}
	if w.closed && w.open == 0 {
		w.notifyAll()
	}
}

// over reports that Run may return. mu is held.
func (w *Writer[I]) over() bool { return w.closed && w.open == 0 }

// Flush waits until all items that were added before have their outcomes, including isolated ones, or until ctx ends,
// and then returns its cause. The items do not linger.
func (w *Writer[I]) Flush(ctx context.Context) error {
	w.mu.Lock()
	if w.open == 0 {
		w.mu.Unlock()
		return nil
	}
	f := &flush{below: w.added, left: w.open, done: make(chan struct{})}
	w.flushes = append(w.flushes, f)
	w.urgent = max(w.urgent, w.added)
	w.mu.Unlock()
	base.Signal(w.wake)
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.flushes = slices.DeleteFunc(w.flushes, func(o *flush) bool { return o == f })
		return context.Cause(ctx)
	}
}

// Stats are the counts of a Writer.
type Stats struct {
	Open     int // items without an outcome
	Waiting  int // items in no batch, including deferred and isolated ones
	Isolated int // items that are retried by themselves
	Behind   int // items that wait for an isolated one of their key
}

// Stats returns the current counts.
func (w *Writer[I]) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Open: w.open, Isolated: len(w.isolated), Behind: w.followers()}
	s.Waiting = w.waiting.live + len(w.deferred) + s.Isolated + s.Behind
	return s
}

// notifyAll makes every worker check again. mu is held.
func (w *Writer[I]) notifyAll() {
	base.Signal(w.wake)
	base.Signal(w.beck)
}
