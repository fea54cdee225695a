package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Kind is what a session is used for.
type Kind uint8

// The kinds.
const (
	Claim Kind = iota
	Settle
	Extend
	Enqueue
	Pipe
	Note // statements that can wait
	call // the call of a Part of OpenOnce
	kinds
)

func (k Kind) String() string {
	return [...]string{"claims", "settles", "extensions", "sends", "pipes", "notes", "calls"}[k]
}

// reserved returns how many sessions a kind keeps if the *sql.DB has a limit and its parts
// may use need at once.
func (k Kind) reserved(need int) int {
	if k == Note || k == call {
		return 0
	}
	return min(need, 2)
}

// Need is how many sessions of a kind a part may use at once. Spare sessions are additional:
// if the *sql.DB has a limit, no connection is reserved for them.
type Need struct {
	Kind     Kind
	Sessions int
	Spare    int
}

// Pool has the sessions of one *sql.DB: see the package comment. It is safe for
// concurrent use.
type Pool struct {
	db      *sql.DB
	dialect sqlbatch.Dialect
	store   *puddle.Pool[*session] // nil for OpenOnce
	starved atomic.Int64           // connections are scarce until then, in Unix nanoseconds
	single  turn                   // of all statements while connections are scarce
	patient [kinds]turn            // of patient statements otherwise: a heartbeat does not wait for polls
	turn    chan struct{}          // of capacity 1: see Part.Turn
	end     context.CancelFunc     // ends sweeps
	sweeps  base.Group

	mu    sync.Mutex    // held briefly, never during a statement
	need  [kinds]int    // of the open parts
	used  [kinds]int    // sessions in use
	freed chan struct{} // closed when a statement ends; nil if none waits for that
}

const (
	// moment is how long the turn of a patient statement lasts: longer than statements take on a healthy database,
	// and short compared with the pause of an idle consumer before its next poll. It is also the time between sweeps.
	moment = 500 * time.Millisecond
	// maxIdle is how long a session is idle before it is closed, and how long one that stays is trusted: less than the
	// four minutes after which firewalls begin to drop connections silently. It is much longer than the time between
	// two bursts of a busy server: on each new connection the server plans all statements again.
	maxIdle = time.Minute
	// scarceFor is how long connections count as scarce after the last sign of it: the signs of the next time might
	// delay the application for seconds.
	scarceFor = 30 * time.Second
)

// pools has the Pool of each *sql.DB that has open parts. All queues on a *sql.DB share it.
var pools struct {
	mu sync.Mutex // held briefly, never during a statement
	of map[*sql.DB]*Pool
}

func newPool(db *sql.DB, d sqlbatch.Dialect) *Pool {
	p := &Pool{db: db, dialect: d, single: make(turn, 1), turn: make(chan struct{}, 1)}
	for k := range p.patient {
		p.patient[k] = make(turn, 1)
	}
	return p
}

// Open adds a part for each need to the pool of db. It connects nothing. maxAge limits the age of the sessions
// that the parts use; 0 is no limit. Open fails if the *sql.DB allows too few connections for the reserved ones of all
// parts and one for the application.
func Open(db *sql.DB, d sqlbatch.Dialect, maxAge time.Duration, needs ...Need) ([]*Part, error) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	p := pools.of[db]
	if p == nil {
		p = newPool(db, d)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	need := p.need
	for _, n := range needs {
		need[n.Kind] += n.Sessions
	}
	if err := p.enough(need); err != nil {
		return nil, err
	}
	if p.store == nil {
		p.start()
		if pools.of == nil {
			pools.of = map[*sql.DB]*Pool{}
		}
		pools.of[db] = p
	}
	p.need = need
	parts := make([]*Part, len(needs))
	for i, n := range needs {
		parts[i] = &Part{pool: p, need: n, maxAge: maxAge}
		if p.oneWriter() || n.Kind == Note {
			parts[i].maxAge = 0
		}
	}
	return parts, nil
}

// OpenOnce returns a part for one call. It takes its connection like a call of the application; on a database with one
// writer it uses the only session.
func OpenOnce(db *sql.DB, d sqlbatch.Dialect) *Part {
	n := Need{Kind: call, Sessions: 1}
	if d.Traits().OneWriter {
		if parts, err := Open(db, d, 0, n); err == nil {
			return parts[0]
		}
	}
	return &Part{pool: newPool(db, d), need: n}
}

// start makes the store, and starts to sweep it.
func (p *Pool) start() {
	most := int32(math.MaxInt32) // place decides
	if p.oneWriter() {
		most = 1
	}
	var err error
	p.store, err = puddle.NewPool(&puddle.Config[*session]{
		MaxSize: most,
		Constructor: func(ctx context.Context) (*session, error) {
			conn, err := p.connect(ctx, !p.oneWriter())
			if err != nil {
				return nil, err
			}
			return newSession(conn, p.dialect), nil
		},
		Destructor: (*session).close,
	})
	if err != nil {
		panic(err) // only for a MaxSize below 1
	}
	var life context.Context
	life, p.end = context.WithCancel(context.Background())
	if p.oneWriter() {
		return
	}
	p.sweeps.Go(func() {
		ticker := time.NewTicker(moment)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.sweep()
				p.probe(life)
			case <-life.Done():
				return
			}
		}
	})
}

// leave subtracts the need of a part. The last one closes the pool.
func (p *Pool) leave(n Need) {
	if p.store == nil {
		return
	}
	pools.mu.Lock()
	p.mu.Lock()
	p.need[n.Kind] -= n.Sessions
	last := p.need == [kinds]int{}
	p.mu.Unlock()
	if last {
		delete(pools.of, p.db)
	}
	pools.mu.Unlock()
	if last {
		p.end()
		p.sweeps.Wait()
		p.store.Close()
	}
}

func (p *Pool) oneWriter() bool { return p.dialect.Traits().OneWriter }

// reserve returns how many sessions stay if the *sql.DB has a limit. mu is held.
func (p *Pool) reserve() (total int) {
	if p.oneWriter() {
		return 1
	}
	for k, n := range p.need {
		total += Kind(k).reserved(n)
	}
	return total
}

// enough returns an error if the *sql.DB allows too few connections for the reserved
// connections and one for the application.
func (p *Pool) enough(need [kinds]int) error {
	if p.oneWriter() {
		return Enough(context.Background(), p.db, p.dialect)
	}
	total := 0
	var each []string
	for k, n := range need {
		if reserved := Kind(k).reserved(n); reserved > 0 {
			total += reserved
			each = append(each, fmt.Sprintf("%d for %s", reserved, Kind(k)))
		}
	}
	if most := p.limit(); most > 0 && most < total+1 {
		return tooFew(most, fmt.Sprintf("keeps %d of them for itself (%s, shared by all queues on it)", total,
			strings.Join(each, ", ")), total+1)
	}
	return nil
}

// Enough returns an error if db has no connection for the application in addition to one session: by its limit, or
// because it gives no second one before ctx ends. That is tested only while none is in use.
func Enough(ctx context.Context, db *sql.DB, d sqlbatch.Dialect) error {
	s := db.Stats()
	switch {
	case s.MaxOpenConnections == 1:
		return tooFew(1, "needs one for itself", 2)
	case s.InUse > 0 || d.Traits().OneWriter:
		return nil
	}
	first, err := connect(ctx, db, false)
	if err == nil {
		defer first.Close()
		var second *sql.Conn
		if second, err = connect(ctx, db, false); err == nil {
			return second.Close()
		}
		err = fmt.Errorf("there is no second connection, and chanq and the application need one each: unless "+
			"the database only connects slowly, raise the limit of the driver's pool, the role or the server: %w", err)
	}
	return unconnected(err)
}

func tooFew(most int, why string, least int) error {
	return fmt.Errorf("the *sql.DB allows %d open connections: chanq %s, and the application needs one; call "+
		"SetMaxOpenConns(%d) or more", most, why, least)
}

// limit returns how many connections the *sql.DB may open, or 0 for no limit.
func (p *Pool) limit() int { return p.db.Stats().MaxOpenConnections }

// spare reports whether the *sql.DB has a connection for the next caller, and n more.
func (p *Pool) spare(n int) bool {
	s := p.db.Stats()
	return s.MaxOpenConnections == 0 || s.InUse+n < s.MaxOpenConnections
}

// connect is connect of this package, and looks for signs of scarce connections.
func (p *Pool) connect(ctx context.Context, probe bool) (*sql.Conn, error) {
	if !p.scarce() { // otherwise sessions hold no connection, and something else is slow
		slow := time.AfterFunc(answerTimeout, p.late)
		defer slow.Stop()
	}
	conn, err := connect(ctx, p.db, probe)
	if err != nil && p.dialect.Classify(err) != sqlbatch.Unknown && !isAway(err) {
		p.late()
	}
	return conn, err
}

// isAway reports that the server was not reached, starts, or refused for another reason than a limit (class 53).
func isAway(err error) bool {
	var network net.Error
	var answer interface{ SQLState() string }
	return errors.As(err, &network) || errors.As(err, &answer) && !strings.HasPrefix(answer.SQLState(), "53")
}

// late records that an attempt to connect failed, or takes long. It might just wait for a connection
// that the *sql.DB has given to the application.
func (p *Pool) late() {
	if !p.oneWriter() && p.spare(0) {
		p.starve()
	}
}

// starve returns all sessions, those in use when their statements end.
func (p *Pool) starve() {
	p.starved.Store(time.Now().Add(scarceFor).UnixNano())
	if p.store != nil {
		p.store.Reset()
	}
}

func (p *Pool) scarce() bool { return time.Now().UnixNano() < p.starved.Load() }

// sweep closes the sessions that were idle for too long. Their connections are closed as well: the *sql.DB does not
// know their age.
func (p *Pool) sweep() {
	limited := p.limit() > 0
	stay := 0
	if limited {
		p.mu.Lock()
		stay = p.reserve()
		p.mu.Unlock()
	}
	total := int(p.store.Stat().TotalResources())
	switch {
	case p.scarce(): // one might have come late
		p.store.Reset()
		return
	case total <= stay: // without AcquireAllIdle: no statement may miss them
		return
	}
	for _, res := range slices.Backward(p.store.AcquireAllIdle()) { // the longest idle first
		idle := res.IdleDuration()
		if total > stay && (limited || idle >= maxIdle) {
			res.Value().broken = true
			res.Destroy()
			total--
		} else {
			res.ReleaseUnused()
		}
	}
}

// probe connects, to look whether connections are scarce. If the *sql.DB has no idle connection, the application might
// wait for one, which its driver does not show.
func (p *Pool) probe(ctx context.Context) {
	held := p.store.Stat()
	if p.scarce() || p.db.Stats().Idle > 0 || !p.spare(1) || held.TotalResources() == 0 ||
		held.ConstructingResources() > 0 { // which is as good a look
		return
	}
	if conn, err := p.connect(ctx, false); err == nil {
		_ = conn.Close()
	}
}

// turn lets one statement run at a time, but no longer than a moment: one that hangs does not hold up the others.
type turn chan struct{}

// next waits until no other turn lasts, or until ctx ends. done ends the turn.
func (t turn) next(ctx context.Context) (done func()) {
	select {
	case t <- struct{}{}:
		over := time.AfterFunc(moment, func() { <-t })
		return func() {
			if over.Stop() {
				<-t
			}
		}
	case <-ctx.Done():
		return func() {}
	}
}
