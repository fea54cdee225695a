package guarantees

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

// SQLite reports these errors with the same code as a missing table.
func TestOnSQLiteAMissingTableStopsAConsumerAndAnErrorOfATriggerDoesNot(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := embedded.Open(filepath.Join(t.TempDir(), "queue.db"))
	require.NoError(t, err)
	defer db.Close()
	var down atomic.Int64
	told := make(chan struct{}, 1)
	cfg := chanq.Config{Hooks: chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) {
		if e.Err != nil && down.Add(1) == 1 {
			told <- struct{}{}
		}
	}}}
	require.NoError(t, chanq.Migrate(ctx, db, "work", cfg))
	q, err := chanq.Open[string](ctx, db, "work", cfg)
	require.NoError(t, err)
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(ctx)) }()
	_, err = p.Send(ctx, chanq.Message[string]{Body: "a"})
	require.NoError(t, err)

	_, err = db.ExecContext(ctx, `CREATE TRIGGER audit BEFORE UPDATE ON chanq_work BEGIN SELECT json('no JSON'); END`)
	require.NoError(t, err)
	c, err := q.Consume(ctx, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	require.NoError(t, err)
	testdb.Receive(t, told, "the outage")
	require.NoError(t, c.Err())
	_, err = db.ExecContext(ctx, `DROP TRIGGER audit`)
	require.NoError(t, err)
	l := testdb.Take(t, c, 1)[0]
	require.Equal(t, "a", l.Body)
	require.NoError(t, l.Ack())
	require.NoError(t, c.Flush(ctx))

	_, err = db.ExecContext(ctx, `DROP TABLE chanq_work`)
	require.NoError(t, err)
	require.Nil(t, testdb.Receive(t, c.C(), "the end of the channel"))
	require.ErrorIs(t, c.Err(), chanq.ErrNoSchema)
	require.ErrorIs(t, c.Shutdown(ctx), chanq.ErrNoSchema)
}

// pgx caches prepared statements. After the ALTER the server refuses them, once per connection, with the SQLSTATE of a feature that it does
// not support (0A000).
func TestOnPostgreSQLAChangeOfAColumnsTypeStopsNoConsumer(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.Postgres}, func(w *testdb.World) {
		for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
			name := "work_" + kind.String()
			q := w.Queue(name, chanq.Config{Spec: chanq.Spec{Kind: kind}})
			c := testdb.Start(w, q, chanq.ConsumerConfig{})
			deliver := func(text string) {
				for range 3 {
					_, err := q.Send(w.Soon(), testdb.Texts("a")...)
					require.NoError(w, err, text)
					require.NoError(w, testdb.Take(w, c, 1)[0].Ack(), text)
					_, err = testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 1)
					require.NoError(w, err, text)
				}
			}
			deliver("before")
			for _, change := range []string{"type TYPE varchar(100)", "attempts TYPE bigint"} {
				w.Exec(`ALTER TABLE chanq_` + name + ` ALTER COLUMN ` + change)
				deliver(change)
			}
			require.NoError(w, c.Err())
		}
	})
}
