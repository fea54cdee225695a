package send

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The order in which the batches of a producer with InFlight 1 are committed, although several are stored concurrently.
//
// With one connection the database idles while the client packs, and while it waits for the answer. If a batch is being
// stored and another one is full, the second one goes ahead in its own transaction: it is packed and inserted while the
// first one is stored, and committed after it. The first statement of each batch has a ticket, and passes two points.
// The next batch waits for them:
//
//	placed   later inserts get no earlier place
//	over     it is committed, or has failed
//
// The place of a transaction is its start time, on databases that use that time. On an ordered queue the place is a
// number, which the transaction then draws immediately, by Begun.
//
//	batch n      BEGIN ─ placed ─ INSERT ─────── COMMIT ─ over
//	batch n + 1           └▶ BEGIN ─ placed ─ INSERT ──────└▶ COMMIT ─ over ─ …
//
// If batch n fails, n + 1 cannot have been committed: it is rolled back, and the writer stores it again when n has its
// outcomes. The same holds for a batch that cannot go ahead because it has dedup keys, chosen IDs or messages of
// unknown outcome: its INSERT might have to wait for a later open transaction. Such a batch is one statement, which
// commits by itself.

// groupsAtOnce is the maximum number of concurrent batches. With three, one is inserted while another one waits for its
// commit, and a third one for its turn. The two additional round trips should cost nothing on a slow network
// (estimated, not measured).
const groupsAtOnce = 3

// Minimum sizes of a full batch that is worth a transaction.
const (
	aheadRows  = 64
	aheadBytes = 64 << 10
)

// aheadPause is how long nothing goes ahead after a failure.
const aheadPause = time.Second

// errOvertaken means that a batch cannot go ahead, or the previous batch is not stored.
var errOvertaken error = &session.NotRunError{Err: errors.New("the group before is not stored")}

// Workers returns how many workers the writer of a producer has, and whether its batches go ahead of each other.
func Workers(inFlight, batchRows, batchBytes int, traits sqlbatch.Traits) (workers int, ahead bool) {
	if inFlight > 1 || traits.OneWriter || batchRows < aheadRows || batchBytes < aheadBytes {
		return inFlight, false
	}
	return groupsAtOnce, true
}

// commitOrder has the tickets of the batches that are being stored.
type commitOrder struct {
	mu      sync.Mutex // guards what follows; held briefly
	tickets map[uint64]*ticket
	rests   time.Time // no transaction begins until this time
}

// ticket is the ticket of the first statement of one batch. The other statements have none: nil.
type ticket struct {
	former           *ticket       // of the previous batch; set by join
	isPlaced, isOver chan struct{} // closed once
	placing          sync.Once
	ok               bool // it is committed; set before isOver is closed
}

// join takes the ticket of a batch. The next batch might have joined before.
func (o *commitOrder) join(number uint64) *ticket {
	if o == nil || number == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.ticket(number)
	t.former = o.ticket(number - 1)
	// The batch after that one has joined, because no more than groupsAtOnce are being stored
	delete(o.tickets, number-groupsAtOnce-1)
	return t
}

// ticket returns the ticket of that number. mu is held.
func (o *commitOrder) ticket(number uint64) *ticket {
	t := o.tickets[number]
	if t == nil {
		t = &ticket{isPlaced: make(chan struct{}), isOver: make(chan struct{})}
		o.tickets[number] = t
	}
	return t
}

func (t *ticket) placed() { t.placing.Do(func() { close(t.isPlaced) }) }

// end ends the ticket: the batch is committed, or has failed.
func (t *ticket) end(ok bool) {
	if t == nil {
		return
	}
	t.ok, t.former = ok, nil
	close(t.isOver)
	t.placed()
}

// committed waits until the ticket is over, and reports whether its batch is committed.
func (t *ticket) committed(ctx context.Context) bool { return waitFor(ctx, t.isOver) && t.ok }

// failed reports that the ticket is over, and its batch not committed.
func (t *ticket) failed() bool {
	select {
	case <-t.isOver:
		return !t.ok
	default:
		return false
	}
}

// rest stops going ahead for aheadPause.
func (o *commitOrder) rest() {
	o.mu.Lock()
	o.rests = time.Now().Add(aheadPause)
	o.mu.Unlock()
}

func (o *commitOrder) resting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.rests)
}

// mayBegin reports whether a batch is to be stored by storeBegun: earlier batches are being stored, or a full one is
// waiting, and there are connections for both.
func (s *Sender) mayBegin(t *ticket, ahead bool) bool {
	return t != nil && (ahead || s.writer.Full()) && !s.order.resting() && s.cfg.Table.Spare()
}

// storeBegun stores rows in a transaction. If the batch goes ahead, the transaction is committed after the previous
// batch.
func (s *Sender) storeBegun(ctx context.Context, t *ticket, ahead bool, rows []sqlbatch.Row) error {
	insert := s.cfg.Table.Pack(rows) // while the previous batch is being stored
	if ahead && (!waitFor(ctx, t.former.isPlaced) || t.former.failed()) {
		return errOvertaken
	}
	begun := false
	err := s.cfg.Table.InOwnTx(ctx, func(tx Tx) error {
		if begun { // a second transaction would have a later place than the next batch
			return errOvertaken
		}
		begun = true
		drawn, err := tx.Draw(ctx)
		if err != nil {
			return err
		}
		if drawn || tx.Placed() {
			t.placed()
		}
		if err := tx.Enqueue(ctx, insert); err != nil {
			return err
		}
		t.placed()
		if ahead && !t.former.committed(ctx) {
			return errOvertaken
		}
		return nil
	})
	if err != nil && !errors.Is(err, errOvertaken) {
		s.order.rest()
	}
	return err
}

// waitFor waits until ch is closed. It returns false when ctx ends.
func waitFor(ctx context.Context, ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-ctx.Done():
		return false
	}
}
