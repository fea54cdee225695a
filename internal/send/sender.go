package send

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Table has the statements of a producer: see package table.
type Table interface {
	Insert
	// Pack makes the statement that Tx.Enqueue runs.
	Pack(rows []sqlbatch.Row) sqlbatch.Statement
	// InOwnTx runs f in a transaction, which is committed if f returns nil.
	InOwnTx(ctx context.Context, f func(Tx) error) error
	// Spare reports that there is a connection for one more statement.
	Spare() bool
}

// Tx is a transaction that stores one batch.
type Tx interface {
	// Draw draws the number that gives the rows their place, unless the INSERT does it.
	Draw(ctx context.Context) (drawn bool, err error)
	// Placed reports that the start time of the transaction is the place of the rows.
	Placed() bool
	Enqueue(ctx context.Context, st sqlbatch.Statement) error
}

// Config configures a Sender.
type Config struct {
	Table                    Table
	Classify                 func(error) sqlbatch.Class
	Health                   batch.Health
	Traits                   sqlbatch.Traits
	BatchRows, BatchBytes    int // of one statement
	BufferBytes              int // of messages that were added and are not stored
	InFlight                 int // concurrent statements; 1: messages are stored in the order of their sends
	Linger, StatementTimeout time.Duration
	// Open ends when Close begins, and Abandoned when it gives up.
	Open, Abandoned context.Context

	// Isolated is called with the number of isolated messages when it changes.
	Isolated func(items int, err error)
	// Notify is called before the outcomes are known, if messages are stored or might be. more means that others
	// follow.
	Notify func(messages int, slots notify.Slots, more bool)
	// Keep copies the origin of an unsent item, so that it does not keep its neighbours in memory. Unsent is called
	// with each such item, in the order in which they are kept, under a lock: it must not wait. Both may be nil if
	// every item has a Call.
	Keep   func(origin any) any
	Unsent func(Outcome)
	// Sent is called for each batch of which some messages were stored.
	Sent func(began time.Time, messages, duplicates, bytes int)
}

// Unsent is an item without a Call that is not known to be stored. ID of its Outcome is the item's.
type Unsent struct {
	Origin any
	Outcome
	size int // in the buffer
}

// Sender stores messages. Its writer batches them, repeats failed statements and isolates messages that fail alone.
type Sender struct {
	cfg     Config
	inserts Inserts
	writer  *batch.Writer[*Item]
	buffer  *semaphore.Weighted

	givenUp context.Context
	giveIn  context.CancelCauseFunc

	unanswered atomic.Int64  // items that were added and have not been resolved or withdrawn
	answered   chan struct{} // of capacity 1: has a value when there are none

	// Of batches that are stored ahead: see ahead.go. Only the goroutine that writes batches uses begun.
	begun   []*begun
	running base.Group // those of begun, and those that were rolled back

	mu     sync.Mutex // guards what follows, and the outcomes of Calls
	unsent []Unsent
}

// New returns a Sender that stores nothing before Run.
func New(cfg Config) *Sender {
	s := &Sender{
		cfg: cfg, inserts: Inserts{Insert: cfg.Table, Classify: cfg.Classify, FindIDs: cfg.Traits.FindIDs},
		buffer: semaphore.NewWeighted(int64(cfg.BufferBytes)), answered: make(chan struct{}, 1),
	}
	s.givenUp, s.giveIn = context.WithCancelCause(context.Background())
	s.writer = batch.New(batch.Config[*Item]{
		Full: []int{cfg.BatchRows}, Bytes: cfg.BatchBytes, Linger: cfg.Linger,
		Cut: func(items []*Item) int {
			return Cut(items, cfg.BatchRows, cfg.BatchBytes,
				func(i **Item) (*sqlbatch.Row, int, bool) { return (*i).rest(), len((*i).Body), (*i).Given })
		},
		Key: (*Item).Key, InTurn: cfg.InFlight == 1, Workers: cfg.InFlight,
		Loop: batch.Loop{Health: cfg.Health, Classify: cfg.Classify, Waited: session.Unconnected,
			Timeout: cfg.StatementTimeout},
		Isolated: cfg.Isolated,
		Write:    s.write, Done: s.done,
	})
	return s
}

// Run stores messages until Close, and until each has its outcome, or until GiveUp.
func (s *Sender) Run() {
	s.writer.Run(s.givenUp)
	s.rollBack()
	s.running.Wait()
}

// End releases the resources of Run, after it has returned.
func (s *Sender) End() { s.giveIn(nil) }

// Close makes Run return when each message has its outcome. Drain disables lingering. Flush waits until all messages
// that were added are stored, or known to be impossible to store.
func (s *Sender) Close()                          { s.writer.Close() }
func (s *Sender) Drain()                          { s.writer.Drain() }
func (s *Sender) Flush(ctx context.Context) error { return s.writer.Flush(ctx) }
func (s *Sender) Stats() batch.Stats              { return s.writer.Stats() }

// Send adds the items of a call, and waits for their outcomes, or for the end of ctx.
func (s *Sender) Send(ctx context.Context, call *Call, items []Item) {
	all := items
	for len(items) > 0 { // in parts that fit the buffer
		n, size := 1, items[0].Size
		for n < len(items) && size+items[n].Size <= s.cfg.BufferBytes/2 {
			size += items[n].Size
			n++
		}
		if err := s.add(ctx, items[:n], size); err != nil {
			s.mu.Lock()
			for i := range items {
				call.Resolve(int(items[i].Index), Outcome{Receipt: Receipt{ID: items[i].ID}, Err: err})
			}
			s.mu.Unlock()
			break
		}
		items = items[n:]
	}
	select {
	case <-call.Done:
	case <-ctx.Done():
		s.withdraw(call, all[:len(all)-len(items)], context.Cause(ctx))
	}
}

// add adds items, of size bytes in total, to the writer when the buffer has room, unless the producer is closed.
func (s *Sender) add(ctx context.Context, items []Item, size int) error {
	if s.cfg.Open.Err() != nil {
		return batch.ErrClosed
	}
	if err := s.reserve(ctx, size); err != nil {
		return err
	}
	if !s.push(len(items), func(i int) *Item { return &items[i] }) {
		s.buffer.Release(int64(size))
		return batch.ErrClosed
	}
	return nil
}

// reserve waits for room in the buffer.
func (s *Sender) reserve(ctx context.Context, size int) error {
	if s.buffer.TryAcquire(int64(size)) {
		return nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.cfg.Abandoned, cancel)()
	switch err := s.buffer.Acquire(wait, int64(size)); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return batch.ErrClosed
	}
}

// push adds items to the writer. It returns false if the writer is closed.
func (s *Sender) push(n int, item func(i int) *Item) bool {
	s.unanswered.Add(int64(n))
	if s.writer.AddAll(n, item, batch.Awaited) != nil {
		s.answer(n)
		return false
	}
	return true
}

// PushInTurn adds n items without a Call when the buffer has room. After Close begins it does not wait for room:
// nothing follows these items, and items that could not be stored keep their room until TakeUnsent.
func (s *Sender) PushInTurn(n int, item func(i int) *Item, size int) {
	if s.reserve(s.cfg.Open, size) != nil {
		for i := range n {
			item(i).Size = 0
		}
	}
	s.push(n, item)
}

// KeepUnsent keeps an item that cannot be stored until TakeUnsent. It takes room in the buffer like any other, at most
// size.
func (s *Sender) KeepUnsent(item *Item, size int, err error) {
	size = min(item.Size, size)
	if s.reserve(s.cfg.Open, size) != nil {
		size = 0 // Close has begun: it is kept in any case
	}
	s.mu.Lock()
	s.keep(item, size, Outcome{Receipt: Receipt{ID: item.ID}, Err: err})
	s.mu.Unlock()
}

// keep keeps an item until TakeUnsent. mu is held.
func (s *Sender) keep(item *Item, size int, o Outcome) {
	s.unsent = append(s.unsent, Unsent{s.cfg.Keep(item.Origin), o, size})
	s.cfg.Unsent(o)
}

// FirstUnsent returns how many items without a Call are not known to be stored, and the first of them.
func (s *Sender) FirstUnsent() (first Unsent, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = len(s.unsent); n > 0 {
		first = s.unsent[0]
	}
	return first, n
}

// Full reports that items without a Call are not known to be stored, and take the room that other items wait for.
func (s *Sender) Full() bool {
	_, n := s.FirstUnsent()
	return n > 0 && s.unanswered.Load() == 0 && !s.buffer.TryAcquire(0) // TryAcquire fails while anything waits
}

// TakeUnsent returns the items without a Call that are not known to be stored, each to one caller, and frees their
// room.
func (s *Sender) TakeUnsent() []Unsent {
	s.mu.Lock()
	unsent := s.unsent
	s.unsent = nil
	s.mu.Unlock()
	size := 0
	for i := range unsent {
		size += unsent[i].size
	}
	s.buffer.Release(int64(size))
	return unsent
}

// answer records that n items are resolved, withdrawn or refused.
func (s *Sender) answer(n int) {
	if s.unanswered.Add(-int64(n)) == 0 {
		base.Signal(s.answered)
	}
}

// GiveUp resolves all items. It waits neither for statements, because a driver might take long to notice the
// cancellation, nor for hooks.
func (s *Sender) GiveUp() {
	s.Close() // at once: what a codec returns later is not stored
	s.giveIn(batch.ErrClosed)
	for s.unanswered.Load() > 0 {
		<-s.answered
	}
}

// withdraw gives up the items of a call whose context ended. Items that no statement has, or had with an unknown
// outcome, are taken back, and are certainly not stored. The outcomes of the rest are too late.
func (s *Sender) withdraw(call *Call, items []Item, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		item := &items[i]
		taken := s.writer.Withdraw(item)
		if taken {
			s.buffer.Release(int64(item.Size))
			s.answer(1)
		}
		call.Resolve(int(item.Index), Outcome{Receipt: Receipt{ID: item.ID}, Err: cause, Unknown: !taken})
	}
}

// write stores items in one statement, which commits by itself, or commits the transaction that has them (ahead.go).
// With an error it returns the items that are known to be stored. skipLocked: a statement has failed, so that there is
// no transaction, or the item is isolated.
func (s *Sender) write(ctx context.Context, items []*Item, skipLocked bool) (written []*Item, err error) {
	keyed, stored := keyed(items), false
	if !skipLocked {
		stored, err = s.storeAhead(ctx, items)
	}
	if !keyed && !stored {
		err = s.inserts.Enqueue(ctx, rowsOf(items))
	}
	if !keyed && (err == nil || s.cfg.Classify(err) != sqlbatch.Duplicate) {
		return nil, err
	}
	rows := rowsOf(items)
	// Also after a Duplicate: the driver has repeated an INSERT whose outcome it did not know.
	receipts := make([]Receipt, len(items))
	open, err := s.inserts.StoreNew(ctx, rows, receipts)
	isOpen := make(map[[16]byte]bool, len(open))
	for i := range open {
		isOpen[open[i].ID] = true
	}
	for i, item := range items {
		// What it is a duplicate of may leave
		if dup := receipts[i]; !isOpen[item.ID] && (err == nil || !dup.Duplicate) {
			if dup != (Receipt{}) {
				item.duplicate = &dup
			}
			written = append(written, item)
		}
	}
	return written, err
}

// keyed reports that an ID or key of the items might be in the queue already.
func keyed(items []*Item) bool {
	return slices.ContainsFunc(items, func(i *Item) bool { return i.Given || i.rest().Key != "" || i.Unknown })
}

func rowsOf(items []*Item) []sqlbatch.Row {
	rows := make([]sqlbatch.Row, len(items))
	for i, item := range items {
		rows[i] = item.Row()
	}
	return rows
}

// done wakes consumers, and reports the outcomes of items.
func (s *Sender) done(began time.Time, outcomes []batch.Outcome[*Item]) {
	stored, unknown, duplicates, bytes := 0, 0, 0, 0
	var slots notify.Slots
	for _, o := range outcomes {
		if o.Err == nil || o.Unknown {
			slots.Add(o.Item.rest().Slot)
		}
		switch {
		case o.Err == nil:
			stored++
			bytes += len(o.Item.Body)
			if o.Item.duplicate != nil {
				duplicates++
			}
		case o.Unknown:
			unknown++
		}
	}
	if stored+unknown > 0 {
		w := s.writer.Stats()
		s.cfg.Notify(stored+unknown, slots, stored == 0 || w.Open-w.Isolated-w.Behind > len(outcomes))
		runtime.Gosched() // claims run before the next batch, because the messages wait for them
	}
	s.resolve(outcomes)
	if stored > 0 {
		s.cfg.Sent(began, stored-duplicates, duplicates, bytes)
	}
}

// resolve passes outcomes to the calls that wait for them. It keeps items without a Call that are not known to be
// stored, with their room in the buffer, until TakeUnsent.
func (s *Sender) resolve(outcomes []batch.Outcome[*Item]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := 0
	for _, o := range outcomes {
		item, out := o.Item, Outcome{Receipt: Receipt{ID: o.Item.ID}, Err: o.Err, Unknown: o.Unknown}
		switch {
		case o.Err == nil && item.duplicate != nil:
			out.Receipt = *item.duplicate
		case o.Err == batch.ErrClosed && o.Unknown:
			out.Err = cmp.Or(context.Cause(s.cfg.Abandoned), o.Err) // why Close gave up
		}
		switch call, waits := item.Origin.(*Call); {
		case waits:
			call.Resolve(int(item.Index), out)
		case out.Err != nil:
			s.keep(item, item.Size, out)
			continue
		}
		freed += item.Size
	}
	if freed > 0 {
		s.buffer.Release(int64(freed))
	}
	s.answer(len(outcomes))
}
