// Package mssqlnotify wakes idle consumers of chanq on SQL Server: a sleeping consumer has a
// message of another process in a few milliseconds, where it would otherwise wait for its
// next look.
//
//	notifier := mssqlnotify.New(db, mssqlnotify.Config{})
//	defer notifier.Close()
//	queue, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
//
// Give one Notifier per *sql.DB to the Config of all queues on it, in programs that consume.
// Senders need no Notifier: SQL Server itself looks for messages. Ordered queues
// make no use of the Notifier; their consumers poll.
//
// While consumers are idle the Notifier runs one request after another, each for all of their
// queues and of at most a second. In the request the server looks at each queue, waits for
// Config.Every, and looks again, until there is a message that may be claimed. Then the Notifier
// wakes one consumer of that queue. The request reads; between two looks it holds no row
// lock, no transaction and no row version.
//
// Two sessions look at a queue at a time, of all processes: each request takes one of two
// application locks per queue and releases it at its end. The other processes poll and try
// again after 0.25 s, later every 10 s. The session with the second lock leaves a message to
// the first one for four looks, so that one message wakes one process. A process that is
// stopped but not dead (SIGSTOP, a suspended machine) keeps its lock until its request ends.
//
// # What is found
//
// A request begins where the one before it ended, at the head: 250 ms before the first
// message that may be claimed, or before the last look if there was none. It does not read
// again what was settled or leased before that. A message that is released to a time before
// the head, or whose commit took longer than 250 ms, is found by the rescans of the
// consumers, within about a second.
//
// After a find the queue is not looked at for four times Config.Every. If the same message is
// still the first one, the pause doubles, up to 250 ms.
//
// # When it fails
//
// An error of a request closes the channels of the consumers: they poll, and listen again
// after a second. Config.Changed is called, and the next request follows after a pause of
// 0.1 to 4 s. If a table is missing or locked by ALTER TABLE, or a permission is missing, each
// queue is then tried alone, and the queue that fails is left out of the requests of the others.
//
// # Cost
//
// One connection of the *sql.DB and a worker thread of the server while a consumer is idle.
// If the *sql.DB has a limit (SetMaxOpenConns), raise it by one: chanq does not count this
// connection. Processor time of the server per queue is estimated, not measured on
// Microsoft's engine: docs/sqlserver.md. A request needs no permission beyond those of a
// consumer. A connection timeout in the DSN has to be 0 or above one second. Requests for
// at most 32 queues are made; consumers of further queues poll.
package mssqlnotify

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/status"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Config tunes a Notifier. The zero value is right for most.
type Config struct {
	// Every is the pause between two looks of the server. SQL Server waits in units of about
	// 3.3 ms. A longer pause costs less processor time, and delays messages by half of the pause on
	// average. A value outside of the range is replaced by the nearer bound.
	// Default: 2 ms. Range: 1 ms to 1 s.
	Every time.Duration

	// Changed is called, once per change, with the reason why this process's idle consumers
	// of a queue poll; and with nil when all are woken again. It is called
	// by a goroutine of its own, once at a time: changes during a call might be
	// reported as one, or not at all if they cancel out. Close waits for it, so it must not
	// call Close. A panic in it ends that call and nothing else.
	Changed func(error)
}

// ErrOneConnection is what Config.Changed and Err report of a *sql.DB that allows one
// connection only, which the Notifier would keep.
var ErrOneConnection = errors.New("mssqlnotify: the *sql.DB allows one connection: a Notifier needs two (SetMaxOpenConns)")

// Notifier is a chanq.Notifier. It is safe for concurrent use.
//
// Its goroutines, joined by Close: one that makes requests, from the first Listen on, and
// those of its Status.
type Notifier struct {
	db     *sql.DB
	every  time.Duration
	status *status.Status
	open   context.Context // until Close
	close  context.CancelFunc
	joined sync.WaitGroup
	work   chan struct{} // of capacity 1: a consumer has begun to listen, or the last one has left
	conn   *sql.Conn     // of the goroutine; nil: it has none

	mu     sync.Mutex // guards what follows; held for moments, not during a statement
	closed bool
	runs   bool     // the goroutine was started
	queues []*queue // in the order of their names: the text of the statement depends on it
}

// New makes a Notifier of db, which must outlive it. It connects nothing.
func New(db *sql.DB, cfg Config) *Notifier {
	if cfg.Every == 0 {
		cfg.Every = 2 * time.Millisecond
	}
	b := &Notifier{
		db: db, every: min(max(cfg.Every, time.Millisecond), time.Second), status: status.New(cfg.Changed),
		work: make(chan struct{}, 1),
	}
	b.open, b.close = context.WithCancel(context.Background())
	return b
}

// Notify implements chanq.Notifier. It does nothing: the server looks for messages.
func (b *Notifier) Notify(chanq.Notification) {}

// PlainOnly implements an option of chanq.Notifier: ordered queues make no use of the Notifier.
func (b *Notifier) PlainOnly() {}

// Close ends the request under way, closes the connection of the Notifier, or gives it back if
// there is no request, and joins its goroutines. Consumers that still listen poll from then on.
// It may be called again, and always returns nil.
func (b *Notifier) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.status.Close()
	b.joined.Wait()
	return nil
}

// Err returns why consumers are not woken, and nil if they are or none has listened yet.
func (b *Notifier) Err() error { return b.status.Err() }

const (
	// longest is the most time of a request. A consumer that begins to listen waits for the
	// request under way, and a process that is stopped keeps its locks until it ends.
	longest = time.Second
	// patience is how much longer than planned a request might take.
	patience = 5 * time.Second

	lowPause  = 100 * time.Millisecond // after a request that failed, at first
	highPause = 4 * time.Second        // and at last
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

// end gives the connection back, and has all consumers poll.
func (b *Notifier) end() {
	if b.conn != nil {
		_ = b.conn.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		q.deafen()
	}
}

// answer is what a request returned of a queue.
type answer struct {
	locked bool // the request had one of the two locks
	found  bool // there is a message that may be claimed
	head   int64
}

// request runs the statement. The session of one that failed might keep locks, and is closed.
func (b *Notifier) request(r request) (answers []answer, err error) {
	ctx, cancel := context.WithTimeout(b.open, r.atMost+patience)
	defer cancel()
	if b.conn == nil {
		if b.db.Stats().MaxOpenConnections == 1 {
			return nil, ErrOneConnection
		}
		if b.conn, err = session.Connect(ctx, b.db); err != nil {
			return nil, err
		}
	}
	defer func() {
		if p := recover(); p != nil { // of the driver
			err = fmt.Errorf("panic: %v", p)
			b.abandon()
		} else if err != nil {
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

// discard closes the connection instead of giving it back to the *sql.DB.
func (b *Notifier) discard() {
	_ = b.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = b.conn.Close()
	b.conn = nil
}

// abandon closes the driver's connection after a panic, which might have left the *sql.Conn
// locked: its Close would never return.
func (b *Notifier) abandon() {
	defer func() { _ = recover() }()
	conn := b.conn
	b.conn = nil
	_ = conn.Raw(func(raw any) error { return raw.(driver.Conn).Close() })
}

// wait waits for d, for work unless it is nil, or for Close.
func (b *Notifier) wait(d time.Duration, work <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.open.Done():
	case <-work:
	case <-t.C:
	}
}

// isOfQueue reports whether an error of a request is about the table of a queue, or a
// permission, and not about the connection or the server.
func isOfQueue(err error) bool {
	switch sqlserver.Dialect.Classify(err) {
	case sqlbatch.NoSchema, sqlbatch.Permanent, sqlbatch.RolledBack:
		return true
	}
	return false
}
