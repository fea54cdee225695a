package send

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Full batches of a producer with InFlight 1 are inserted while the previous ones are being committed.
//
// With one statement after another the database idles while the client packs, and while the answer is on its way. If a
// full batch is being stored and others are full already, each is inserted in a transaction of its own, and committed
// when its turn comes. The writer knows nothing of it: it writes one batch after another, and while it writes one, the
// next ones still wait. If the next batch that it writes has exactly the items of the next transaction, that one is
// committed. If it has others, for example because one was withdrawn, or after a failure, all transactions are rolled
// back.
//
//	writer       write batch n             write batch n + 1
//	batch n      BEGIN ─ INSERT ─ COMMIT
//	batch n + 1        └▶ BEGIN ─ INSERT ─ ─ ─ ─ ─ ─ ┴ COMMIT
//	batch n + 2                 └▶ BEGIN ─ INSERT ─ ─ ─ ─ ─ ─ ─ …
//
// The place of a row is the start time of its transaction, on databases that use that time. On an ordered queue the
// place is a number, which the transaction draws immediately, by Begun. The next transaction begins when the one before
// has its place.

// MostAhead is the maximum number of transactions of a producer: while one is committed, one is inserted, and another
// one waits for its turn.
const MostAhead = 3

// aheadFor is how long a transaction is open: then the items might have been withdrawn, and others need its session.
const aheadFor = 2 * time.Second

// Minimum sizes of a full batch that is worth a transaction.
const (
	aheadRows  = 64
	aheadBytes = 64 << 10
)

// errSecond means that a transaction cannot be repeated, because it would have a later place than the next batch.
var errSecond = errors.New("a batch has one transaction")

func mostAhead(c *Config) int {
	if c.InFlight > 1 || c.Traits.OneWriter || c.BatchRows < aheadRows || c.BatchBytes < aheadBytes {
		return 0
	}
	return MostAhead
}

// begun is a batch in a transaction.
type begun struct {
	items  []*Item
	end    context.CancelFunc // rolls it back
	placed chan struct{}      // closed: later transactions get no earlier place
	commit chan struct{}      // closed when it is their turn
	over   chan struct{}      // closed: err is valid
	err    error
}

// storeAhead stores items by the transaction that has them. It returns false if there is none.
func (s *Sender) storeAhead(ctx context.Context, items []*Item) (has bool, err error) {
	if len(s.begun) > 0 && (!slices.Equal(s.begun[0].items, items) || s.begun[0].isOver()) {
		s.rollBack()
	}
	if len(s.begun) == 0 && !keyed(items) {
		s.begin(items)
	}
	if len(s.begun) == 0 {
		return false, nil
	}
	b := s.begun[0]
	defer context.AfterFunc(ctx, b.end)()
	close(b.commit)
	s.begin(items)
	<-b.over
	if s.begun = s.begun[1:]; b.err != nil {
		s.rollBack() // the batch will get a later place than they have
	}
	return true, b.err
}

// begin begins transactions for items, which are being written, and for the full batches behind them, if there are any.
func (s *Sender) begin(items []*Item) {
	for len(s.begun) < mostAhead(&s.cfg) && s.cfg.Table.Spare() {
		behind := 0
		var last *begun
		for i, b := range s.begun {
			if last = b; i > 0 {
				behind += len(b.items)
			}
		}
		next := s.writer.Next(items, behind)
		if len(next) == 0 || keyed(next) {
			return
		}
		if last == nil {
			next = slices.Clone(items)
		}
		ctx, end := context.WithTimeout(s.givenUp, min(aheadFor, s.cfg.StatementTimeout))
		b := &begun{items: next, end: end, placed: make(chan struct{}), commit: make(chan struct{}),
			over: make(chan struct{})}
		s.begun = append(s.begun, b)
		s.running.Go(func() {
			defer close(b.over)
			defer end()
			b.err = b.run(ctx, s.cfg.Table, last)
		})
	}
}

// isOver reports that the transaction was not committed in time.
func (b *begun) isOver() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

// rollBack rolls back all transactions. It does not wait: whatever the driver does, none of them is committed.
func (s *Sender) rollBack() {
	for _, b := range s.begun {
		b.end()
	}
	s.begun = nil
}

// run inserts the items after those of former, which may be nil, and commits when it is their turn.
func (b *begun) run(ctx context.Context, table Table, former *begun) error {
	placed := sync.OnceFunc(func() { close(b.placed) })
	defer placed()
	insert := table.Pack(rowsOf(b.items)) // while the batch before is being stored
	if former != nil && !waitFor(ctx, former.placed) {
		return ctx.Err()
	}
	first := true
	return table.InOwnTx(ctx, func(tx Tx) error {
		if !first {
			return errSecond
		}
		first = false
		drawn, err := tx.Draw(ctx)
		if err != nil {
			return err
		}
		if drawn || tx.Placed() {
			placed()
		}
		if err := tx.Enqueue(ctx, insert); err != nil {
			return err
		}
		placed()
		waitFor(ctx, b.commit)
		return ctx.Err()
	})
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
