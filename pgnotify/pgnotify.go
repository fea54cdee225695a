// Package pgnotify wakes idle consumers of chanq in other processes by PostgreSQL's LISTEN and NOTIFY. An idle consumer receives a
// message within a few milliseconds, not at its next poll.
//
//	notifier := pgnotify.New(db, pgnotify.Config{})
//	defer notifier.Close()
//	queue, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
//
// Create one Notifier for each *sql.DB, and set it in the Config of all queues on it, in senders and in consumers. It listens only with
// the driver pgx (github.com/jackc/pgx/v5/stdlib). With other drivers it notifies, and their consumers poll. If the driver of a *sql.DB
// wraps pgx, pass the Notifier a second *sql.DB for the same database, without the wrapper.
//
// A NOTIFY inside a transaction that writes serializes the commits of the whole server. The NOTIFY of a Notifier is a separate
// statement after the commit. It writes nothing, and sends nothing unless a process listens.
//
// A plain queue has four listener slots, which are session-level advisory locks. An idle consumer takes a free one. A sender checks,
// without waiting, which slots are taken, and notifies at most as many of their processes as there are messages. The cost therefore
// does not grow with the number of idle processes. A consumer that finds no free slot polls, and tries again later. A busy consumer
// releases its slot.
//
// The consumers of an ordered queue need no listener slots. Each process with an idle consumer listens on one channel and holds an
// advisory lock in share mode, which a sender tries for the duration of its statement. A notification contains the slots of the messages
// and wakes the consumers that own one of them. Other processes receive it without running a statement.
//
// # Poolers
//
// Listener slots and LISTEN belong to a session. Through a pooler that assigns each transaction another session, such as PgBouncer with
// pool_mode = transaction, no notification would arrive. A Notifier checks this with a notification to itself before it takes a slot. If
// that does not arrive, it calls Config.Changed and tries again every minute; consumers poll in the meantime. Pass New another *sql.DB,
// which bypasses the pooler; queues may go through the pooler.
//
// # Cost
//
// While consumers are idle a Notifier holds one connection of the *sql.DB, and briefly a second one for each notification
// and each check. It replaces the first one at the age chanq.Config.SessionMaxAge; consumers poll when the next one
// listens. Idle processes run one statement every 30 s in addition to the polls of their consumers. A notification is one
// statement, in a separate goroutine: senders do not wait for it. It needs no permission. The locks have the class
// 1667788401 ('chnq') in pg_locks. The names of the channels begin with chnq_.
package pgnotify

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
)

// Config tunes a Notifier. The zero value suits most programs.
type Config struct {
	// Changed is called once per change. It gets the reason why notifications are not received, and nil when they are received again.
	// In between, this process's idle consumers poll. It is called by a separate goroutine, one call at a time. Up to 4096
	// changes wait for it; later ones are dropped. Close waits for these calls, so it must not call Close. A panic in it ends only that call.
	Changed func(error)
}

// ErrSilent is the error of Config.Changed and Err if a notification of the Notifier to itself did not arrive, because of a pooler or a
// broken connection.
var ErrSilent = errors.New("pgnotify: a notification did not arrive: a pooler in transaction mode may be in between; give New a *sql.DB that bypasses it")

// ErrOneConnection is the error of Config.Changed and Err for a *sql.DB that allows only one connection: the Notifier needs one
// permanently and a second one briefly.
var ErrOneConnection = errors.New("pgnotify: the *sql.DB allows one connection: a Notifier needs two (SetMaxOpenConns)")

// ErrDriver is the error of Config.Changed and Err for a *sql.DB whose driver is not pgx.
var ErrDriver = errors.New("pgnotify: only the driver github.com/jackc/pgx/v5/stdlib can listen; if another driver wraps it, give New another *sql.DB without the wrapper")

// Notifier is a chanq.Notifier. It is safe for concurrent use.
//
// Its goroutines, joined by Close: the listener (listen.go), from the first Listen on, and
// one for each of its checks; the sender (notify.go), from the first Notify on; and those of
// its Task.
type Notifier struct {
	db          *sql.DB
	status      base.Task
	own         string          // the channel of its notifications to itself
	open        context.Context // until Close is called
	close       context.CancelFunc
	sending     context.Context // until lastNotifications after Close
	stopSending context.CancelFunc
	joined      sync.WaitGroup
	soon        chan struct{} // of capacity 1: there is a notification to send
	pace        pace

	mu        sync.Mutex // guards the fields below; held briefly, not during a statement
	closed    bool
	listens   bool // there is a listener
	sends     bool // there is a sender
	plain     map[string]*waitedQueue
	owners    map[string]*ownerQueue
	unsent    map[string]*pending
	dirty     bool               // the listener has something to do
	replacing bool               // the waiters wait for a connection that replaces an old one
	maxAge    time.Duration      // of the listener's connection; 0: unset
	interrupt context.CancelFunc // ends its wait for a notification; nil: it does not wait
}

const (
	// lastNotifications is how long Close still sends notifications.
	lastNotifications = time.Second
	// defaultMaxAge is the default of chanq.Config.SessionMaxAge.
	defaultMaxAge = 30 * time.Minute
)

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
	b := &Notifier{
		db: db, status: base.Task{Changed: changedOf(cfg)}, own: channels + "self_" + strings.ToLower(crand.Text()),
		soon: make(chan struct{}, 1), plain: map[string]*waitedQueue{}, owners: map[string]*ownerQueue{}, unsent: map[string]*pending{}, pace: usual,
	}
	b.open, b.close = context.WithCancel(context.Background())
	b.sending, b.stopSending = context.WithCancel(context.Background())
	return b
}

// Close ends the Notifier and joins its goroutines. For at most 1 s it sends pending notifications, so call it after the end of
// producers and consumers. It waits for a running statement and releases its connection. Consumers that still listen poll from then on.
// Close may be called again. It always returns nil.
func (b *Notifier) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	enough := time.AfterFunc(lastNotifications, b.stopSending)
	b.status.End()
	b.joined.Wait()
	enough.Stop()
	b.stopSending()
	return nil
}

// Err returns why notifications are not received, or nil if they are received or no consumer has listened yet.
func (b *Notifier) Err() error { return b.status.Err() }

// SessionMaxAge implements an option of chanq.Notifier: the Notifier replaces its connection at the least of the ages.
func (b *Notifier) SessionMaxAge(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.maxAge == 0 || d < b.maxAge {
		b.maxAge = d
	}
}

// old returns when a connection of now is old: at its maximum age, or up to an eighth before, so that not all
// processes connect simultaneously.
func (b *Notifier) old(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	age := cmp.Or(b.maxAge, defaultMaxAge)
	return now.Add(age - rand.N(age/8+1))
}

// sleep waits for d, or for Close.
func (b *Notifier) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.open.Done():
	case <-t.C:
	}
}
