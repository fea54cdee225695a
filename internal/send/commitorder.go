package send

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// The order in which the groups of a producer with InFlight 1 are committed, although several are stored at the same time.
//
// With one connection the database idles while the client packs, and while it waits for the answer. If a group is under way and
// another one is full, the second one goes ahead in a transaction of its own: it is packed and inserted while the first one is
// stored, and committed after it. The first statement of each group has a ticket, and passes two points, which the one of the next
// group follows:
//
//	placed   nothing that is inserted from now on gets an earlier place
//	over     it is committed, or has failed
//
// A transaction has its place by its time, on databases where that is when it began; on an ordered queue by the number that it
// draws, which it does at once there, by Begun.
//
//	group n      BEGIN ─ placed ─ INSERT ─────── COMMIT ─ over
//	group n + 1           └▶ BEGIN ─ placed ─ INSERT ──────└▶ COMMIT ─ over ─ …
//
// If group n fails, n + 1 cannot have been committed: it is rolled back, and the writer stores it again when n has its outcomes.
// The same holds for a group that cannot go ahead: one with dedup keys, chosen IDs or messages of unknown outcome, whose INSERT
// might have to wait for what is open behind it. That is one statement, which commits by itself.

// groupsAtOnce is how many groups are under way at most. With three one is inserted while another one waits for its commit, and
// a third one for its turn. The two additional round trips should cost nothing on a slow network (estimated, not measured).
const groupsAtOnce = 3

// A group that is full is worth a transaction from this size on.
const (
	aheadRows  = 64
	aheadBytes = 64 << 10
)

// aheadPause is for how long nothing goes ahead after that has failed.
const aheadPause = time.Second

// errOvertaken: a group cannot go ahead, or the group before is not stored.
var errOvertaken error = &session.NotRunError{Err: errors.New("the group before is not stored")}

// Workers returns how many workers the writer of a producer has, and whether its groups go ahead of each other.
func Workers(inFlight, batchRows, batchBytes int, traits sqlbatch.Traits) (workers int, ahead bool) {
	if inFlight > 1 || traits.OneWriter || batchRows < aheadRows || batchBytes < aheadBytes {
		return inFlight, false
	}
	return groupsAtOnce, true
}

// commitOrder has the tickets of the groups that are under way.
type commitOrder struct {
	mu      sync.Mutex // guards what follows; held for moments
	tickets map[uint64]*ticket
	rests   time.Time // until then no transaction begins
}

// ticket is that of the first statement of one group. The other statements have none: nil.
type ticket struct {
	former           *ticket       // of the group before; set by join
	isPlaced, isOver chan struct{} // closed once
	placing          sync.Once
	ok               bool // it is committed; set before isOver is closed
}

// join takes the ticket of a group. The next group may have joined before.
func (o *commitOrder) join(number uint64) *ticket {
	if o == nil || number == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.ticket(number)
	t.former = o.ticket(number - 1)
	delete(o.tickets, number-groupsAtOnce-1) // no more groups are under way, so the one after it has joined
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

// end ends the ticket: the group is committed, or has failed.
func (t *ticket) end(ok bool) {
	if t == nil {
		return
	}
	t.ok, t.former = ok, nil
	close(t.isOver)
	t.placed()
}

// committed waits until the ticket is over, and reports whether its group is committed.
func (t *ticket) committed(ctx context.Context) bool { return waitFor(ctx, t.isOver) && t.ok }

// failed reports that the ticket is over, and its group not committed.
func (t *ticket) failed() bool {
	select {
	case <-t.isOver:
		return !t.ok
	default:
		return false
	}
}

// rest has nothing go ahead for a while.
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

// mayBegin reports whether a group is to be stored by storeBegun: others are under way before it, or are full behind it, and
// there are connections for both.
func (s *Sender) mayBegin(t *ticket, ahead bool) bool {
	return t != nil && (ahead || s.writer.Full()) && !s.order.resting() && s.cfg.Table.Spare()
}

// storeBegun stores rows in a transaction. If the group goes ahead that is committed once the group before is.
func (s *Sender) storeBegun(ctx context.Context, t *ticket, ahead bool, rows []sqlbatch.Row) error {
	insert := s.cfg.Table.Pack(rows) // beside the group before
	if ahead && (!waitFor(ctx, t.former.isPlaced) || t.former.failed()) {
		return errOvertaken
	}
	err := s.cfg.Table.InOwnTx(ctx, func(tx Tx) error {
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

// waitFor waits until ch is closed. It reports false at the end of ctx.
func waitFor(ctx context.Context, ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-ctx.Done():
		return false
	}
}
