package chanq

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// How the groups of a producer with InFlight 1 are stored at the same time, and yet in
// order.
//
// One connection lets the database idle while the client packs and waits for the answer.
// So while a group is under way, and another one is full, that goes ahead in a
// transaction of its own: it is packed and inserted beside the one before, and committed
// after it. Each group has a turn, and passes three points, which those of the next one
// follow:
//
//	placed   nothing that is inserted from now on gets an earlier place
//	stored   it is committed, or has failed to go ahead
//	over     its outcome is known and told
//
// A transaction has its place by its time, on databases where that is when it began; on an
// ordered queue by the number that it draws, which it does at once there, by Begun.
//
//	group n      BEGIN ─ placed ─ INSERT ─────── COMMIT ─ stored ── over
//	group n + 1           └▶ BEGIN ─ placed ─ INSERT ──────└▶ COMMIT ─ stored ─ …
//
// Where group n fails, in whatever way, n + 1 cannot have been committed: it is rolled
// back, and waits until n is over. What cannot go ahead waits so, too: groups with dedup
// keys or chosen IDs, of which a repetition may have to wait for what is open behind it,
// and what has failed to go ahead. That is one statement again, which commits by itself.

// groupsAtOnce is how many groups are on their way at most. With three one is inserted while
// another one waits for its commit, and a third one for its turn; so the two round trips
// more should cost nothing on a slow network (reckoned, not measured).
const groupsAtOnce = 3

// A group that is full is worth a transaction from this size on.
const (
	aheadRows  = 64
	aheadBytes = 64 << 10
)

// aheadPause is for how long nothing goes ahead after that has failed.
const aheadPause = time.Second

// errOvertaken: the group before has failed, or this one has waited for too long.
var errOvertaken = errors.New("the group before is not stored")

// storersOf is how many storers a producer has, and the line in which they stand, if they
// do.
func storersOf(cfg ProducerConfig, traits sqlbatch.Traits) (storers int, l *line) {
	if cfg.InFlight > 1 || traits.OneWriter || cfg.BatchRows < aheadRows || cfg.BatchBytes < aheadBytes {
		return cfg.InFlight, nil
	}
	return groupsAtOnce, &line{turns: map[uint64]*turn{}}
}

// line has the turns of the groups that are under way.
type line struct {
	mu    sync.Mutex // guards what follows; held for moments
	turns map[uint64]*turn
	over  uint64 // the turns below have ended
	rests time.Time
}

// turn is that of one group. A nil one is that of a group that follows nobody.
type turn struct {
	line   *line
	number uint64
	former *turn // nil: over when this one joined; of the storer alone

	isPlaced, isStored, isOver chan struct{} // closed once
	ok                         bool          // it was stored; set before isStored is closed
	placing, storing           sync.Once
}

// join takes the turn of a group. Whoever is next may have asked for it before.
func (l *line) join(number uint64) *turn {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turn(number)
	if number > l.over {
		t.former = l.turn(number - 1)
	}
	return t
}

// turn returns the turn of that number, which is not over. mu is held.
func (l *line) turn(number uint64) *turn {
	t := l.turns[number]
	if t == nil {
		t = &turn{line: l, number: number, isPlaced: make(chan struct{}), isStored: make(chan struct{}), isOver: make(chan struct{})}
		l.turns[number] = t
	}
	return t
}

func (t *turn) placed() { t.placing.Do(func() { close(t.isPlaced) }) }

// stored says whether the group is stored; the first word counts.
func (t *turn) stored(ok bool) {
	if t == nil {
		return
	}
	t.storing.Do(func() {
		t.ok = ok
		close(t.isStored)
	})
	t.placed()
}

// failed reports that the group has failed to go ahead.
func (t *turn) failed() bool {
	select {
	case <-t.isStored:
		return !t.ok
	default:
		return false
	}
}

// await waits until the groups before are over.
func (t *turn) await() {
	if t != nil && t.former != nil {
		<-t.former.isOver
		t.former = nil
	}
}

// end ends the turn, after those before.
func (t *turn) end() {
	if t == nil {
		return
	}
	t.await()
	t.stored(true) // or impossible to store
	t.line.mu.Lock()
	delete(t.line.turns, t.number)
	t.line.over = t.number + 1
	t.line.mu.Unlock()
	close(t.isOver)
}

// rest has nothing go ahead for a while.
func (l *line) rest() {
	l.mu.Lock()
	l.rests = time.Now().Add(aheadPause)
	l.mu.Unlock()
}

func (l *line) resting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.rests)
}

// mayGoAhead reports whether a group is to be stored by storeAhead: others are under way,
// or are full behind it, and there are connections for both.
func (p *shardProducer[T]) mayGoAhead(t *turn) bool {
	return t != nil && (t.former != nil || p.backlog.Full()) && !p.line.resting() && p.sessions.Spare()
}

// storeAhead stores rows in a transaction that is committed once the group before is
// stored. Where it fails the rows are not stored, unless the commit itself failed.
func (p *shardProducer[T]) storeAhead(ctx context.Context, t *turn, rows []sqlbatch.Row) error {
	own := p.queue.sql.InOwnTx()
	st := own.EnqueueBegun(rows)
	former := t.former
	if former != nil && (!waitFor(ctx, former.isPlaced) || former.failed()) {
		t.stored(false)
		return errOvertaken
	}
	err := p.sessions.InTx(ctx, func(tx *sql.Tx) error {
		if begun := own.Begun(); p.queue.ordered() && begun.Text != "" {
			if err := session.RunTx(ctx, tx, begun, nil); err != nil {
				return err
			}
			t.placed()
		}
		if p.queue.dialect.Traits().PlacesBegun && !p.queue.ordered() {
			t.placed()
		}
		if err := session.RunTx(ctx, tx, st, nil); err != nil {
			return err
		}
		t.placed()
		if former != nil && !(waitFor(ctx, former.isStored) && former.ok) {
			return errOvertaken
		}
		return nil
	})
	t.stored(err == nil)
	if err != nil && !errors.Is(err, errOvertaken) {
		p.line.rest()
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
