// Package mssqlnotify wakes idle consumers of chanq on SQL Server. An idle consumer receives a message of another process within a few
// milliseconds, not at its next poll.
//
//	notifier := mssqlnotify.New(db, mssqlnotify.Config{})
//	defer notifier.Close()
//	queue, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
//
// Create one Notifier per *sql.DB, and set it in the Config of all queues on it, in programs that consume. Senders need no Notifier: SQL
// Server itself polls for messages. Ordered queues do not use the Notifier; their consumers poll.
//
// While consumers are idle the Notifier runs one request after another. Each request is for all of their queues and lasts at most 1 s. In
// the request the server reads each queue, waits for Config.Every, and reads again, until a message can be claimed. Then the Notifier
// wakes one consumer of that queue. Between two reads the request holds no row lock, no transaction and no row version.
//
// At most two sessions in all processes poll a queue simultaneously: each request takes one of two application locks per queue and releases it at
// its end. The other processes poll as without a Notifier, and try again after 0.25 s, later every 10 s. The session with the second lock
// leaves a message to the first session for four reads, so that one message wakes one process. A process that is stopped but not dead
// (SIGSTOP, a suspended machine) keeps its lock until its request ends.
//
// # What is found
//
// A request begins where the previous one ended: 250 ms before the first message that could be claimed, or before the last read if there
// was none. It does not read messages again that were settled or leased before that. The rescans of the consumers find a message that is
// released to an earlier time, or whose commit took longer than 250 ms, within about a second.
//
// After a find the queue is not read for four times Config.Every. If the same message is still the first one, the pause doubles, up to
// 250 ms.
//
// # When it fails
//
// After an error of a request the consumers poll, and listen again after 1 s. Config.Changed is called, and the next request follows after
// a pause of 0.1 to 4 s. If a table is missing or locked by ALTER TABLE, or a permission is missing, each queue is then tried alone, and
// the failing queue is excluded from the requests of the others.
//
// # Cost
//
// While a consumer is idle a Notifier takes one connection of the *sql.DB and one worker thread of the server. If the *sql.DB has a limit
// (SetMaxOpenConns), raise it by one: chanq does not count this connection. The processor time of the server per queue is estimated, not
// measured on Microsoft's engine: docs/engines/sqlserver.md. A request needs no permission beyond those of a consumer. A connection timeout in
// the DSN must be 0 or above 1 s. A request is for at most 32 queues; consumers of further queues poll.
package mssqlnotify

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Config tunes a Notifier. The zero value suits most programs.
type Config struct {
	// Every is the pause between two reads of the server. SQL Server waits in units of about 3.3 ms. A longer pause costs less processor
	// time, and delays messages by half of the pause on average. A value outside the range is replaced by the nearer bound. Default: 2 ms.
	// Range: 1 ms to 1 s.
	Every time.Duration

	// Changed is called once per change. It gets the reason why this process's idle consumers of a queue poll, and nil when all of
	// them are woken again. It is called by a separate goroutine, one call at a time. Up to 4096
	// changes wait for it; later ones are dropped. Close waits for these calls, so it must not call Close. A panic in it ends only that call.
	Changed func(error)
}

// ErrOneConnection is the error of Config.Changed and Err for a *sql.DB that allows only one connection, which the Notifier would keep.
var ErrOneConnection = errors.New("mssqlnotify: the *sql.DB allows one connection: a Notifier needs two (SetMaxOpenConns)")

// Notifier is a chanq.Notifier. It is safe for concurrent use.
//
// Its goroutines, joined by Close: one that makes requests, from the first Listen on, and
// those of its Task.
type Notifier struct {
	db     *sql.DB
	every  time.Duration
	status base.Task
	open   context.Context // until Close is called
	close  context.CancelFunc
	joined sync.WaitGroup
	work   chan struct{} // of capacity 1: a consumer has begun to listen, or the last one has left
	conn   *sql.Conn     // of the goroutine; nil: no connection
	renew  time.Time     // a connection that is in use then is replaced

	mu     sync.Mutex // guards the fields below; held briefly, not during a statement
	closed bool
	maxAge time.Duration // of the connection; 0: unset
	runs   bool          // the goroutine was started
	queues []*queue      // sorted by name, because the text of the statement depends on the order
}

// changedOf returns what is called when the Notifier begins or ends to work. Its end is no change.
func changedOf(cfg Config) func(err error, ended bool) {
	return func(err error, ended bool) {
		if cfg.Changed != nil && !ended {
			base.Call(func() { cfg.Changed(err) })
		}
	}
}

// New returns a Notifier on db, which must outlive it. It makes no database call.
func New(db *sql.DB, cfg Config) *Notifier {
	if cfg.Every == 0 {
		cfg.Every = 2 * time.Millisecond
	}
	b := &Notifier{
		db: db, every: min(max(cfg.Every, time.Millisecond), time.Second), status: base.Task{Changed: changedOf(cfg)},
		work: make(chan struct{}, 1),
	}
	b.open, b.close = context.WithCancel(context.Background())
	return b
}

// Notify implements chanq.Notifier. It does nothing: the server polls for messages.
func (b *Notifier) Notify(chanq.Notification) {}

// defaultMaxAge is the default of chanq.Config.SessionMaxAge.
const defaultMaxAge = 30 * time.Minute

// SessionMaxAge implements an option of chanq.Notifier: the Notifier replaces its connection at the least of the ages.
func (b *Notifier) SessionMaxAge(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.maxAge == 0 || d < b.maxAge {
		b.maxAge = d
	}
}

// PlainOnly implements an option of chanq.Notifier: ordered queues do not use the Notifier.
func (b *Notifier) PlainOnly() {}

// Close ends the running request and joins the goroutines of the Notifier. It closes its connection, or releases it if no request runs.
// Consumers that still listen poll from then on. Close may be called again. It always returns nil.
func (b *Notifier) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.status.End()
	b.joined.Wait()
	return nil
}

// Err returns why consumers are not woken, or nil if they are woken or no consumer has listened yet.
func (b *Notifier) Err() error { return b.status.Err() }

const (
	// longest is the longest time of a request. A consumer that begins to listen waits for the running request, and a stopped process
	// keeps its locks until its request ends.
	longest = time.Second
	// patience is how much longer than planned a request may take.
	patience = 5 * time.Second

	lowPause  = 100 * time.Millisecond // after a failed request, initially
	highPause = 4 * time.Second        // at most
)

// run makes one request after another until Close.
func (b *Notifier) run() {
	defer b.end()
	pause := lowPause
	for b.open.Err() == nil {
		r, listens, wait := b.plan(time.Now())
		switch {
		case len(r.queues) > 0:
		case !listens && b.conn != nil:
			_ = b.conn.Close()
			b.conn = nil
			continue
		default:
			b.wait(wait, b.work)
			continue
		}
		answers, err := b.request(r)
		switch {
		case b.open.Err() != nil:
			return
		case err == nil:
			b.answered(r, answers, time.Now())
			pause = lowPause
		case b.failed(r, err, time.Now()):
		default:
			b.wait(pause/2+rand.N(pause/2+1), nil)
			pause = min(2*pause, highPause)
		}
	}
}

// end releases the connection, and makes all consumers poll.
func (b *Notifier) end() {
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		q.closeAll()
	}
}

// answer is the result of a request for a queue.
type answer struct {
	locked bool // the request had one of the two locks
	found  bool // there is a message that can be claimed
	head   int64
}

// request runs the statement. The session of a failed request might keep locks, so it is closed.
func (b *Notifier) request(r request) (answers []answer, err error) {
	ctx, cancel := context.WithTimeout(b.open, r.atMost+patience)
	defer cancel()
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.discard()
		}
	}()
	st := sqlserver.Dialect.Watch(r.watched, b.every, r.atMost)
	rows, err := b.conn.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	n := 0
	answers = make([]answer, len(r.queues))
	for rows.Next() {
		var place, locked, found int
		var a answer
		if err := rows.Scan(&place, &locked, &found, &a.head); err != nil {
			return nil, err
		}
		a.locked, a.found = locked == 1, found == 1
		if place < 0 || place >= len(answers) {
			return nil, fmt.Errorf("a request for %d queues returned a row for queue %d", len(answers), place)
		}
		answers[place] = a
		n++
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	if n != len(answers) {
		return nil, fmt.Errorf("a request for %d queues returned %d rows", len(answers), n)
	}
	return answers, nil
}

// connect takes a connection, unless there is one that is not old. No request runs: it loses nothing.
func (b *Notifier) connect(ctx context.Context) (err error) {
	for now := time.Now(); ; {
		if b.conn == nil {
			if b.db.Stats().MaxOpenConnections == 1 {
				return ErrOneConnection
			}
			if b.conn, err = session.Connect(ctx, b.db); err != nil {
				return err
			}
		}
		if now.Before(b.renew) {
			return nil
		}
		first := b.renew.IsZero()
		b.mu.Lock()
		age := cmp.Or(b.maxAge, defaultMaxAge)
		b.mu.Unlock()
		b.renew = now.Add(age - rand.N(age/8+1)) // not all processes connect simultaneously
		if first {
			return nil
		}
		b.discard()
	}
}

// discard closes the connection instead of releasing it to the *sql.DB.
func (b *Notifier) discard() {
	_ = b.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = b.conn.Close()
	b.conn = nil
}

// wait waits for d, for work (unless it is nil), or for Close.
func (b *Notifier) wait(d time.Duration, work <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.open.Done():
	case <-work:
	case <-t.C:
	}
}

// isOfQueue reports whether the cause of a request's error is the table of a queue or a permission, and not the connection or the server.
func isOfQueue(err error) bool {
	switch sqlserver.Dialect.Classify(err) {
	case sqlbatch.NoSchema, sqlbatch.Permanent, sqlbatch.RolledBack:
		return true
	}
	return false
}
