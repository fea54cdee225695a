package pgnotify_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// database is a database to which a test connects once per simulated process.
type database struct {
	*testing.T
	config *pgx.ConnConfig
	admin  *sql.DB
}

func newDatabase(t *testing.T) *database { return databaseAt(t, pgtest.Config(t)) }

func databaseAt(t *testing.T, config *pgx.ConnConfig) *database {
	p := &database{T: t, config: config}
	p.admin = p.connect()
	return p
}

// connect returns the *sql.DB of a process.
func (p *database) connect() *sql.DB {
	db := stdlib.OpenDB(*p.config)
	p.Cleanup(func() { require.NoError(p, db.Close()) })
	return db
}

// notifier returns the Notifier of a process, and the values that it passes to Changed.
func (p *database) notifier(db *sql.DB) (*pgnotify.Notifier, chan error) {
	changed := make(chan error, 100)
	b := pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }})
	p.Cleanup(func() { require.NoError(p, b.Close()) })
	return b, changed
}

// process opens the queue with its own *sql.DB and Notifier.
func (p *database) process() (*chanq.Queue[string], *pgnotify.Notifier) {
	db := p.connect()
	b, _ := p.notifier(db)
	return testdb.OpenOn[string](p, db, "work", chanq.Config{Notifier: b}), b
}

func (p *database) migrate() {
	require.NoError(p, chanq.Migrate(p.Context(), p.admin, "work", chanq.Config{}))
}

// rarely is the config of a consumer that polls only when it is woken, once it listens.
var rarely = chanq.ConsumerConfig{PollEvery: time.Hour}

const work = "public.work"

// asleep waits until a consumer has a listener slot, has polled since, and is idle.
func (p *database) asleep(c *chanq.Consumer[string], b *pgnotify.Notifier) {
	testdb.Eventually(p, "it has a listener slot", func() bool { return b.Slot(work) >= 0 })
	looks := int64(-1)
	testdb.Eventually(p, "it is idle", func() bool {
		before := looks
		looks = c.Stats().Looks + c.Stats().EmptyClaims
		p.settle(20 * time.Millisecond)
		return looks == before && looks > 0
	})
}

// settle waits for d, during which nothing should happen.
func (p *database) settle(d time.Duration) {
	select {
	case <-p.Context().Done():
	case <-time.After(d):
	}
}

// taken returns the server processes that hold listener slots.
func (p *database) taken() (pids []int) {
	rows, err := p.admin.QueryContext(p.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1667788401 AND mode = 'ExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(p, err)
	defer rows.Close()
	for rows.Next() {
		var pid int
		require.NoError(p, rows.Scan(&pid))
		pids = append(pids, pid)
	}
	require.NoError(p, rows.Err())
	return pids
}

// pass sends a message, receives it from the consumer, and acks it.
func (p *database) pass(by *chanq.Producer[string], to *chanq.Consumer[string]) {
	testdb.SendBy(p, by, chanq.Message[string]{Body: "a"})
	require.NoError(p, testdb.Take(p, to, 1)[0].Ack())
}

func TestAnIdleConsumerOfAnotherProcessGetsEachMessageWithoutPolling(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.migrate()
	sends, _ := p.process()
	reads, b := p.process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, reads, rarely)
	var slowest time.Duration
	for range 20 {
		p.asleep(c, b)
		began := time.Now()
		p.pass(producer, c)
		slowest = max(slowest, time.Since(began))
	}
	s := c.Stats()
	t.Logf("slowest %v; %+v", slowest, s)
	require.LessOrEqual(t, s.Looks+s.EmptyClaims, int64(2*20+20), "it does not poll instead")
	require.Len(t, p.taken(), 1)
}

// A transaction of the caller notifies no consumer; the caller calls Wake after the commit.
func TestWakeNotifiesForATransaction(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.migrate()
	db := p.connect()
	through, _ := p.notifier(db)
	calls := &called{Notifier: through}
	sends := testdb.OpenOn[string](p, db, "work", chanq.Config{Notifier: calls})
	reads, b := p.process()
	c := testdb.Start(p, reads, rarely)
	p.asleep(c, b)
	tx, err := p.admin.BeginTx(p.Context(), nil)
	require.NoError(t, err)
	_, err = sends.SendTx(p.Context(), tx, chanq.Message[string]{Body: "a"})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	p.settle(50 * time.Millisecond)
	require.Zero(t, calls.n.Load(), "no notification was sent") // a poll of the consumer that is late might find the message
	sends.Wake()
	require.Equal(t, int64(1), calls.n.Load())
	testdb.Take(p, c, 1)
}

// called counts the calls of Notify.
type called struct {
	*pgnotify.Notifier
	n atomic.Int64
}

func (c *called) Notify(n chanq.Notification) {
	c.n.Add(1)
	c.Notifier.Notify(n)
}

func TestAMessageWakesOneOfFourConsumers(t *testing.T) {
	t.Parallel()
	const n = 6
	p := newDatabase(t)
	var woken [n]<-chan struct{}
	var stops [n]func()
	var notifiers [n]*pgnotify.Notifier
	for i := range n {
		notifiers[i], _ = p.notifier(p.connect())
		woken[i], stops[i] = notifiers[i].Listen(work, nil)
	}
	listeners := func() (indexes []int) {
		for i := range n {
			if notifiers[i].Slot(work) >= 0 {
				indexes = append(indexes, i)
			}
		}
		return indexes
	}
	testdb.Eventually(p, "four have listener slots", func() bool { return len(listeners()) == 4 })
	p.settle(2 * time.Second) // the other processes have tried again
	indexes := listeners()
	require.Len(t, indexes, 4)
	require.Len(t, p.taken(), 4)
	for _, i := range indexes {
		testdb.Receive(p, woken[i], "the first value")
	}
	sum := func() (notified int) {
		for i := range n {
			notified += len(woken[i])
		}
		return notified
	}
	sender, _ := p.notifier(p.connect())
	sender.Notify(chanq.Notification{Queue: work, Messages: 1})
	testdb.Eventually(p, "one consumer is woken", func() bool { return sum() == 1 })
	p.settle(100 * time.Millisecond)
	require.Equal(t, 1, sum())
	sender.Notify(chanq.Notification{Queue: work, Messages: 1000})
	testdb.Eventually(p, "all are woken", func() bool { return sum() == 4 })

	sender.Notify(chanq.Notification{Queue: "public.another", Messages: 1000})
	stops[indexes[0]]()
	testdb.Eventually(p, "another one takes the listener slot", func() bool { return len(listeners()) == 4 && notifiers[indexes[0]].Slot(work) < 0 })
	for _, i := range listeners() {
		testdb.Receive(p, woken[i], "the first value, or the notification")
	}
	sender.Notify(chanq.Notification{Queue: work, Messages: 1000})
	testdb.Eventually(p, "it is woken", func() bool { return sum() >= 4 })
	for _, stop := range stops {
		stop()
	}
	testdb.Eventually(p, "all listener slots are free", func() bool { return len(p.taken()) == 0 })
}

// A consumer that stopped before it received a notification passes it on to another process.
func TestANotificationThatWasNotReceivedIsPassedOn(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	first, _ := p.notifier(p.connect())
	second, _ := p.notifier(p.connect())
	woken, stop := first.Listen(work, nil)
	testdb.Receive(p, woken, "the first value")
	sender, _ := p.notifier(p.connect())
	sender.Notify(chanq.Notification{Queue: work, Messages: 1})
	testdb.Eventually(p, "it is notified", func() bool { return len(woken) == 1 })
	late, end := second.Listen(work, nil)
	defer end()
	testdb.Receive(p, late, "the first value")
	stop() // without receiving the notification
	testdb.Receive(p, late, "the notification of the first one")
}

func TestABusyConsumerReleasesItsListenerSlot(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.migrate()
	sends, _ := p.process()
	busy, notifier := p.process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, busy, rarely)
	p.asleep(c, notifier)
	testdb.SendBy(p, producer, testdb.Texts("a", "b")...) // no reader receives them
	testdb.Eventually(p, "its listener slot is free", func() bool { return len(p.taken()) == 0 })
	reads, second := p.process()
	idle := testdb.Start(p, reads, rarely)
	p.asleep(idle, second)
	// The busy consumer has doubling pauses before its next poll, and may find a message before the idle consumer has
	// claimed it.
	for sent := 3; ; sent++ {
		testdb.SendBy(p, producer, testdb.Texts("c")...)
		testdb.Eventually(p, "one of them has it", func() bool { return len(idle.C()) > 0 || len(c.C()) == sent })
		if len(idle.C()) > 0 {
			require.NoError(t, testdb.Take(p, idle, 1)[0].Ack())
			for _, l := range testdb.Take(p, c, sent-1) {
				require.NoError(t, l.Ack())
			}
			return
		}
	}
}

func TestALostConnectionIsReplacedAndMessagesSentMeanwhileAreFound(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.migrate()
	sends, _ := p.process()
	db := p.connect()
	b, changed := p.notifier(db)
	producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
	c := testdb.Start(p, testdb.OpenOn[string](p, db, "work", chanq.Config{Notifier: b}), rarely)
	p.asleep(c, b)
	for range 3 {
		killed := time.Now()
		for _, pid := range p.taken() {
			_, err := p.admin.ExecContext(p.Context(), "SELECT pg_terminate_backend($1)", pid)
			require.NoError(t, err)
		}
		p.pass(producer, c)
		require.Error(t, testdb.Receive(p, changed, "that notifications do not arrive"))
		require.NoError(t, testdb.Receive(p, changed, "that notifications arrive again"))
		p.asleep(c, b)
		t.Log("back after", time.Since(killed))
		require.Less(t, time.Since(killed), 30*testdb.Slowness*time.Second) // a minute would be the pause after ErrSilent
		p.pass(producer, c)
	}
}

func TestAnOldConnectionIsReplacedAndMessagesSentMeanwhileAreFound(t *testing.T) {
	t.Parallel()
	for kind, slots := range map[string][]int{"plain": nil, "ordered": {1}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newDatabase(t)
			p.migrate()
			db := p.connect()
			b, changed := p.notifier(db)
			sender, _ := p.notifier(p.connect())
			testdb.OpenOn[string](p, db, "work", chanq.Config{Notifier: b, SessionMaxAge: 150 * time.Millisecond})
			woken, stop := b.Listen(work, slots)
			testdb.Receive(p, woken, "the first value")
			seen := map[int]bool{}
			for began := time.Now(); len(seen) < 4; {
				require.Less(t, time.Since(began), testdb.Patience, "it is replaced")
				var pid int
				err := p.admin.QueryRow(`SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1667788401
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1`).Scan(&pid)
				if err == nil { // otherwise the connection is being replaced
					seen[pid] = true
				}
				sender.Notify(chanq.Notification{Queue: work, Messages: 1, Slots: slots})
				select { // a notification, or that the next connection listens
				case _, open := <-woken:
					require.True(t, open, "the consumer need not poll in between")
				case <-time.After(testdb.Patience):
					require.Fail(t, "a notification is lost")
				}
			}
			require.Empty(t, changed)
			stop()
		})
	}
}

func TestADriverThatDropsNotificationsIsReported(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	changed := make(chan error, 10)
	b := pgnotify.Paced(pgnotify.New(p.connect(), pgnotify.Config{Changed: func(err error) { changed <- err }}), 100*time.Millisecond, time.Second, time.Hour)
	defer b.Close()
	woken, stop := b.Listen(work, nil)
	defer stop()
	require.ErrorIs(t, testdb.Receive(p, changed, "the report"), pgnotify.ErrSilent)
	require.ErrorIs(t, b.Err(), pgnotify.ErrSilent)
	require.Empty(t, woken)
	require.Empty(t, p.taken())
}

// The server process of the connection is stopped: no data arrives, and there is no error.
func TestAConnectionThatDeliversNothingIsReported(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.StartCluster(t).DSN()) // its own cluster, because one of its processes is stopped
	require.NoError(t, err)
	p := databaseAt(t, config)
	changed := make(chan error, 10)
	b := pgnotify.Paced(pgnotify.New(p.connect(), pgnotify.Config{Changed: func(err error) { changed <- err }}), 10*time.Second, 100*time.Millisecond, time.Hour) // a check of a slow machine arrives within the first
	defer b.Close()
	woken, stop := b.Listen(work, nil)
	defer stop()
	testdb.Receive(p, woken, "the first value")
	p.settle(500 * time.Millisecond)
	require.Empty(t, changed, "its checks arrive")
	pid := p.taken()[0]
	freeze(t, pid)
	defer thaw(t, pid)
	require.ErrorIs(t, testdb.Receive(p, changed, "that notifications do not arrive"), pgnotify.ErrSilent)
	_, open := <-woken
	require.False(t, open)
}

func TestCloseEndsTheListenersAndReleasesTheirLocks(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	b, _ := p.notifier(p.connect())
	woken, stop := b.Listen(work, nil)
	testdb.Receive(p, woken, "the first value")
	require.NoError(t, b.Close())
	_, open := <-woken
	require.False(t, open)
	stop()
	woken, stop = b.Listen(work, nil)
	_, open = <-woken
	require.False(t, open)
	stop()
	b.Notify(chanq.Notification{Queue: work})
	testdb.Eventually(p, "its locks are gone", func() bool { return len(p.taken()) == 0 })
	require.NoError(t, b.Close())
}

func ExampleNew() {
	db, err := sql.Open("pgx", "postgres:///shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	notifier := pgnotify.New(db, pgnotify.Config{Changed: func(err error) { fmt.Println("notifier:", err) }})
	defer notifier.Close()
	_ = chanq.Config{Notifier: notifier} // of all queues on db
}
