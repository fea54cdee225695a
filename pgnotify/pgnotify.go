// Package pgnotify wakes idle consumers of chanq in other processes by PostgreSQL's
// LISTEN and NOTIFY: an idle consumer has a message in a few milliseconds, where
// it would otherwise wait for the consumer's next poll.
//
//	notifier := pgnotify.New(db, pgnotify.Config{})
//	defer notifier.Close()
//	queue, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
//
// Give one Notifier for each *sql.DB to the Config of all queues on it, in senders and in
// consumers. It listens with the driver pgx (github.com/jackc/pgx/v5/stdlib) only; with
// others it notifies, and their consumers poll as without a Notifier. A *sql.DB whose driver wraps pgx needs a second one without the
// wrapper, to the same database, for the Notifier.
//
// NOTIFY inside of a transaction that writes makes the commits of the whole server wait
// for each other. A Notifier's is a statement of its own after the commit, which writes
// nothing, and sends nothing unless a process listens.
//
// A plain queue has four chairs,
// session-level advisory locks, and an idle consumer takes one if it is free. A sender
// looks which chairs are taken, without waiting, and notifies as many of their
// processes as there are messages. The number of idle processes does not matter. A consumer that
// finds no free chair polls, and tries again now and then. A consumer with enough to do
// gives its chair up.
//
// The consumers of an ordered queue need no chairs. Each process with an idle consumer listens on one channel
// and holds an advisory lock in share mode, which a sender tries for the length of its statement. A notification has the slots
// of the messages, and wakes the consumers that own one of them. The other processes receive it, and run no statement.
//
// # Poolers
//
// Chairs and LISTEN belong to a session. Through a pooler that gives each transaction
// another one, such as PgBouncer with pool_mode = transaction, nothing would be heard. A
// Notifier finds that out before it takes a chair, by a notification to itself, tells
// Config.Changed, and tries again each minute: consumers poll meanwhile. Give New another
// *sql.DB, which goes round the pooler; queues may go through it.
//
// # Cost
//
// One connection of the *sql.DB while a consumer has been idle, and one more for a
// moment at each notification and each check. Idle processes run a statement each thirty seconds
// in addition to the polls of their consumers. A notification is one statement, in a goroutine of its
// own: senders do not wait for it. It needs no right. Locks have the class 1667788401
// ('chnq') in pg_locks, channels names that begin with chnq_.
package pgnotify

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/status"
)

// Config tunes a Notifier. The zero value is right for most.
type Config struct {
	// Changed is called, once per change, with the reason why notifications are not received, so that this
	// process's idle consumers poll, and with nil when they are received again. It is called
	// by a goroutine of its own, once at a time: changes that come while it runs may be
	// told as one, or not at all if they cancel out. Close waits for it, so it must not
	// call Close. A panic in it ends that call and nothing else.
	Changed func(error)
}

// ErrSilent is what Config.Changed and Err tell when a notification of the Notifier to itself
// did not arrive: a pooler is between it and the server, or the connection is gone.
var ErrSilent = errors.New("pgnotify: a notification did not arrive: a pooler in transaction mode may be in between; give New a *sql.DB that bypasses it")

// ErrOneConnection is what Config.Changed and Err tell of a *sql.DB that allows one
// connection only: the Notifier needs that one for itself, and one more for moments.
var ErrOneConnection = errors.New("pgnotify: the *sql.DB allows one connection: a Notifier needs two (SetMaxOpenConns)")

// ErrDriver is what Config.Changed and Err tell of a *sql.DB whose driver is not pgx.
var ErrDriver = errors.New("pgnotify: only the driver github.com/jackc/pgx/v5/stdlib can listen; if another driver wraps it, give New a *sql.DB of its own without the wrapper")

// Notifier is a chanq.Notifier. It is safe for concurrent use.
//
// Its goroutines, joined by Close: the listener (listen.go), from the first Listen on, and
// one for each of its checks; the sender (notify.go), from the first Notify on; and those of
// its Status.
type Notifier struct {
	db     *sql.DB
	status *status.Status
	own    string          // the channel on which it hears itself
	open   context.Context // until Close
	close  context.CancelFunc
	rings  context.Context // until lastRings after that
	hush   context.CancelFunc
	joined sync.WaitGroup
	soon   chan struct{} // of capacity 1: there is something to ring for
	pace   pace

	mu        sync.Mutex // guards what follows; held for moments, not during a statement
	closed    bool
	listens   bool // there is a listener
	sends     bool // there is a sender
	lines     map[string]*waitedQueue
	owners    map[string]*ownerQueue
	unsent    map[string]*pending
	dirty     bool               // the listener has something to do
	interrupt context.CancelFunc // of its wait for a notification; nil: it does not wait
}

// lastRings is for how long Close still rings.
const lastRings = time.Second

// New makes a Notifier of db, which must outlive it. It connects nothing.
func New(db *sql.DB, cfg Config) *Notifier {
	b := &Notifier{
		db: db, status: status.New(cfg.Changed), own: channels + "self_" + strings.ToLower(rand.Text()),
		soon: make(chan struct{}, 1), lines: map[string]*waitedQueue{}, owners: map[string]*ownerQueue{}, unsent: map[string]*pending{}, pace: usual,
	}
	b.open, b.close = context.WithCancel(context.Background())
	b.rings, b.hush = context.WithCancel(context.Background())
	return b
}

// Close ends the Notifier. It notifies of what it has not notified of yet, so close it after
// producers and consumers: for a second at most. It gives its connection back and joins its goroutines,
// after a statement that is under way. Consumers that still listen poll from then on. It
// may be called again, and always returns nil.
func (b *Notifier) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	enough := time.AfterFunc(lastRings, b.hush)
	b.status.Close()
	b.joined.Wait()
	enough.Stop()
	b.hush()
	return nil
}

// Err returns why notifications are not received, and nil if they are or no consumer has listened yet.
func (b *Notifier) Err() error { return b.status.Err() }

// sleep waits for d, or for Close.
func (b *Notifier) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.open.Done():
	case <-t.C:
	}
}
