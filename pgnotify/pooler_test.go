package pgnotify_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// A pooler gives each transaction, or statement, a session that others have, too.
func TestBehindAPoolerItIsToldOnceAndConsumersPoll(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.migrate()
			pooled := placeAt(t, pgtest.StartPooler(t, p.config, mode).Config())
			changed := make(chan error, 10)
			db := pooled.connect()
			began := time.Now()
			b := pgnotify.Paced(pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }}), time.Second, 10*time.Second, 100*time.Millisecond)
			defer b.Close()
			// In statement mode the queue goes round it: it needs transactions.
			consumes := db
			if mode == "statement" {
				consumes = p.admin
			}
			c := testdb.Start(p, testdb.OpenOn[string](p, consumes, "work", chanq.Config{Notifier: b}), chanq.ConsumerConfig{})
			require.ErrorIs(t, testdb.Receive(p, changed, "word of it"), pgnotify.ErrSilent)
			t.Log("told after", time.Since(began))
			require.Less(t, time.Since(began), 2*testdb.Slowness*time.Second)
			sends, _ := p.process()
			producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
			p.pass(producer, c)
			p.settle(4 * time.Second) // it has tried again and again
			require.Empty(t, changed, "it is told once")
			require.Empty(t, p.taken(), "no session has a chair that nobody can give back")
			require.LessOrEqual(t, len(p.listening(pooled)), 1)
			require.NoError(t, c.Shutdown(testdb.Soon(p)))
		})
	}
}

// listening is what the session listens to that a pooler gives next.
func (p *place) listening(pooled *place) (channels []string) {
	rows, err := pooled.admin.QueryContext(p.Context(), "SELECT pg_listening_channels()")
	require.NoError(p, err)
	defer rows.Close()
	for rows.Next() {
		var channel string
		require.NoError(p, rows.Scan(&channel))
		channels = append(channels, channel)
	}
	require.NoError(p, rows.Err())
	return channels
}

// Queues go through the pooler, and their notifier round it.
func TestANotifierRoundThePoolerWakesConsumersBehindIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.migrate()
	pooled := placeAt(t, pgtest.StartPooler(t, p.config, "transaction").Config())
	process := func() (*chanq.Queue[string], *pgnotify.Notifier) {
		b, _ := p.notifier(p.connect())
		return testdb.OpenOn[string](p, pooled.connect(), "work", chanq.Config{Notifier: b}), b
	}
	sends, _ := process()
	reads, b := process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, reads, seldom)
	for range 3 {
		p.asleep(c, b)
		p.pass(producer, c)
	}
}

// A pooler that is taken away, and one that gives whole sessions, are heard through.
func TestWhenThePoolerGoesRingsAreHeard(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.migrate()
	transactions := pgtest.StartPooler(t, p.config, "transaction")
	sessions := pgtest.StartPooler(t, p.config, "session")
	way := &detour{}
	way.to.Store(transactions.Config())
	changed := make(chan error, 10)
	db := way.open(t)
	b := pgnotify.Paced(pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }}), 300*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond)
	defer b.Close()
	c := testdb.Start(p, testdb.OpenOn[string](p, p.connect(), "work", chanq.Config{Notifier: b}), seldom)
	require.ErrorIs(t, testdb.Receive(p, changed, "word of it"), pgnotify.ErrSilent)
	way.to.Store(sessions.Config())
	transactions.Stop()
	require.NoError(t, testdb.Receive(p, changed, "that it is heard"))
	sends, _ := p.process()
	producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
	p.asleep(c, b)
	p.pass(producer, c)
	way.to.Store(p.config)
	sessions.Stop()
	require.Error(t, testdb.Receive(p, changed, "that the pooler is lost"))
	require.NoError(t, testdb.Receive(p, changed, "that it is heard again"))
	p.asleep(c, b)
	p.pass(producer, c)
}

// detour is a *sql.DB's way to the server, which may change.
type detour struct {
	to atomic.Pointer[pgx.ConnConfig]
}

// Connect implements driver.Connector.
func (d *detour) Connect(ctx context.Context) (driver.Conn, error) {
	return stdlib.GetConnector(*d.to.Load()).Connect(ctx)
}

// Driver implements driver.Connector.
func (d *detour) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

func (d *detour) open(t *testing.T) *sql.DB {
	db := sql.OpenDB(d)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
