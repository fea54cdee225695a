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

// The order in which the groups of a producer with InFlight 1 are committed, although several are stored at the same time.
//
// With one connection the database idles while the client packs, and while it waits for the answer. If a group is under way and
// another one is full, the second one goes ahead in a transaction of its own: it is packed and inserted while the first one is
// stored, and committed after it. The first statement of each group has a turn, and passes two points, which the one of the next
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

// workersOf returns how many workers the writer of a producer has, and the line of their groups, if these have turns.
func workersOf(cfg ProducerConfig, traits sqlbatch.Traits) (workers int, l *line) {
	if cfg.InFlight > 1 || traits.OneWriter || cfg.BatchRows < aheadRows || cfg.BatchBytes < aheadBytes {
		return cfg.InFlight, nil
	}
	return groupsAtOnce, &line{turns: map[uint64]*turn{}}
}

// line has the turns of the groups that are under way.
type line struct {
	mu    sync.Mutex // guards what follows; held for moments
	turns map[uint64]*turn
	rests time.Time // until then no transaction begins
}

// turn is that of the first statement of one group. The other statements have none: nil.
type turn struct {
	former           *turn         // of the group before; set by join
	isPlaced, isOver chan struct{} // closed once
	placing          sync.Once
	ok               bool // it is committed; set before isOver is closed
}

// join takes the turn of a group. The next group may have joined before.
func (l *line) join(number uint64) *turn {
	if l == nil || number == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turn(number)
	t.former = l.turn(number - 1)
	delete(l.turns, number-groupsAtOnce-1) // no more groups are under way, so the one after it has joined
	return t
}

// turn returns the turn of that number. mu is held.
func (l *line) turn(number uint64) *turn {
	t := l.turns[number]
	if t == nil {
		t = &turn{isPlaced: make(chan struct{}), isOver: make(chan struct{})}
		l.turns[number] = t
	}
	return t
}

func (t *turn) placed() { t.placing.Do(func() { close(t.isPlaced) }) }

// end ends the turn: the group is committed, or has failed.
func (t *turn) end(ok bool) {
	if t == nil {
		return
	}
	t.ok, t.former = ok, nil
	close(t.isOver)
	t.placed()
}

// committed waits until the turn is over, and reports whether its group is committed.
func (t *turn) committed(ctx context.Context) bool { return waitFor(ctx, t.isOver) && t.ok }

// failed reports that the turn is over, and its group not committed.
func (t *turn) failed() bool {
	select {
	case <-t.isOver:
		return !t.ok
	default:
		return false
	}
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

// mayBegin reports whether a group is to be stored by storeBegun: others are under way before it, or are full behind it, and
// there are connections for both.
func (p *producer[T]) mayBegin(t *turn, ahead bool) bool {
	return t != nil && (ahead || p.writer.Full()) && !p.line.resting() && p.sessions.Spare()
}

// storeBegun stores rows in a transaction. If the group goes ahead that is committed once the group before is.
func (p *producer[T]) storeBegun(ctx context.Context, t *turn, ahead bool, rows []sqlbatch.Row) error {
	own := p.queue.sql.InOwnTx()
	st := own.EnqueueBegun(rows)
	if ahead && (!waitFor(ctx, t.former.isPlaced) || t.former.failed()) {
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
		if ahead && !t.former.committed(ctx) {
			return errOvertaken
		}
		return nil
	})
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
