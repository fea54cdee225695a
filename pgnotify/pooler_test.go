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

// A pooler assigns each transaction, or statement, a session that other clients also use.
func TestAPoolerIsReportedOnceAndConsumersPoll(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newDatabase(t)
			p.migrate()
			pooled := databaseAt(t, pgtest.StartPooler(t, p.config, mode).Config())
			changed := make(chan error, 10)
			db := pooled.connect()
			began := time.Now()
			b := pgnotify.Paced(pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }}), time.Second, time.Hour, 100*time.Millisecond)
			defer b.Close()
			// In statement mode the queue bypasses the pooler, because it needs transactions.
			consumes := db
			if mode == "statement" {
				consumes = p.admin
			}
			c := testdb.Start(p, testdb.OpenOn[string](p, consumes, "work", chanq.Config{Notifier: b}), chanq.ConsumerConfig{})
			require.ErrorIs(t, testdb.Receive(p, changed, "the report"), pgnotify.ErrSilent)
			t.Log("reported after", time.Since(began))
			require.Less(t, time.Since(began), 30*testdb.Slowness*time.Second, "by the first check, not by the next one an hour later")
			sends, _ := p.process()
			producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
			p.pass(producer, c)
			p.settle(4 * time.Second) // the Notifier has tried several times
			require.Empty(t, changed, "it is reported once")
			require.Empty(t, p.taken(), "no session holds a listener slot that cannot be released")
			require.LessOrEqual(t, len(p.listening(pooled)), 1)
			require.NoError(t, c.Shutdown(testdb.Soon(p)))
		})
	}
}

// listening returns the channels of the session that the pooler assigns next.
func (p *database) listening(pooled *database) (channels []string) {
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

// Queues go through the pooler, and their Notifier bypasses it.
func TestANotifierThatBypassesThePoolerWakesConsumersBehindIt(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.migrate()
	pooled := databaseAt(t, pgtest.StartPooler(t, p.config, "transaction").Config())
	process := func() (*chanq.Queue[string], *pgnotify.Notifier) {
		b, _ := p.notifier(p.connect())
		return testdb.OpenOn[string](p, pooled.connect(), "work", chanq.Config{Notifier: b}), b
	}
	sends, _ := process()
	reads, b := process()
	producer, c := testdb.Produce(p, sends, chanq.ProducerConfig{}), testdb.Start(p, reads, rarely)
	for range 3 {
		p.asleep(c, b)
		p.pass(producer, c)
	}
}

// Notifications arrive again after the pooler was removed, and through a pooler in session mode.
func TestNotificationsArriveOnceThePoolerIsGone(t *testing.T) {
	t.Parallel()
	p := newDatabase(t)
	p.migrate()
	transactions := pgtest.StartPooler(t, p.config, "transaction")
	sessions := pgtest.StartPooler(t, p.config, "session")
	path := &detour{}
	path.to.Store(transactions.Config())
	changed := make(chan error, 10)
	db := path.open(t)
	b := pgnotify.Paced(pgnotify.New(db, pgnotify.Config{Changed: func(err error) { changed <- err }}), 300*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond)
	defer b.Close()
	c := testdb.Start(p, testdb.OpenOn[string](p, p.connect(), "work", chanq.Config{Notifier: b}), rarely)
	require.ErrorIs(t, testdb.Receive(p, changed, "the report"), pgnotify.ErrSilent)
	path.to.Store(sessions.Config())
	transactions.Stop()
	require.NoError(t, testdb.Receive(p, changed, "that notifications arrive"))
	sends, _ := p.process()
	producer := testdb.Produce(p, sends, chanq.ProducerConfig{})
	p.asleep(c, b)
	p.pass(producer, c)
	path.to.Store(p.config)
	sessions.Stop()
	require.Error(t, testdb.Receive(p, changed, "that the pooler is lost"))
	require.NoError(t, testdb.Receive(p, changed, "that notifications arrive again"))
	p.asleep(c, b)
	p.pass(producer, c)
}

// detour is the connector of a *sql.DB whose server may change.
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
