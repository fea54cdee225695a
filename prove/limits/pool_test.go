package limits_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// connections is the minimum that a consumer, a producer and an application need.
const connections = 5 + 1 + 1

// number returns the placeholder of parameter n in the dialect.
func (w *world) number(n int) string {
	return map[string]string{"sqlite": "?", "postgres": "$", "sqlserver": "@p"}[w.Engine.Dialect.Name()] + strconv.Itoa(n)
}

// Each of 200 handlers runs queries and waits for its settle while it holds a connection: they
// share the rest of the pool.
func TestManyHandlersShareFewConnections(t *testing.T) {
	onEach(t, func(w *world) {
		const handlers, messages = 200, 2000
		q := w.Queue("work", chanq.Config{})
		w.Exec(`CREATE TABLE handled (body varchar(20) NOT NULL)`)
		w.DB.SetMaxOpenConns(connections)
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		insert := `INSERT INTO handled (body) VALUES (` + w.number(1) + `)`
		var running, most, done atomic.Int64
		var handling sync.WaitGroup
		handling.Go(func() {
			_ = c.Handle(handlers, func(ctx context.Context, l *chanq.Lease[string]) error {
				now := running.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				defer running.Add(-1)
				conn, err := w.DB.Conn(ctx)
				if err != nil {
					return err
				}
				defer conn.Close()
				if _, err := conn.ExecContext(ctx, insert, l.Body); err != nil {
					return err
				}
				if err := l.Ack(); err != nil {
					return err
				}
				if err := l.Wait(ctx); err != nil {
					return err
				}
				done.Add(1)
				return nil
			})
		})
		// Senders also share these connections.
		var sending sync.WaitGroup
		soon := w.Soon()
		for s := range 20 {
			sending.Go(func() {
				for i := range messages / 20 {
					if _, err := p.Send(soon, chanq.Message[string]{Body: fmt.Sprint(s, "/", i)}); err != nil {
						w.Errorf("send: %v", err)
					}
				}
			})
		}
		sending.Wait()
		w.Eventually("all are handled", func() bool { return done.Load() == messages })
		require.NoError(w, c.Shutdown(w.Soon()))
		handling.Wait()
		require.NoError(w, p.Close(w.Soon()))
		require.Zero(w, testdb.Counted(w, q))
		var rows int
		require.NoError(w, w.DB.QueryRow(`SELECT count(*) FROM handled`).Scan(&rows))
		require.Equal(w, messages, rows, "each message was handled once")
		_, conns := w.Faults.Conns()
		require.LessOrEqual(w, conns, connections)
		w.Logf("at most %d concurrent handlers, %d connections", most.Load(), conns)
	})
}

func TestTheConnectionLimitCoversAllProducersAndConsumers(t *testing.T) {
	onEach(t, func(w *world) {
		if w.Engine.Dialect.Traits().OneWriter {
			w.Skip("all queues of a SQLite database share one connection")
		}
		q := w.Queue("work", chanq.Config{})
		other := w.Queue("other", chanq.Config{})
		w.DB.SetMaxOpenConns(connections)
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		_, err := other.Consume(w.Soon(), chanq.ConsumerConfig{})
		require.ErrorContains(w, err, "consume other: the *sql.DB allows 7 open connections: chanq keeps 7 of them for itself (2 for claims, 2 for settles, 2 for extensions, 1 for sends, shared by all queues on it), and the application needs one; call SetMaxOpenConns(8) or more")
		_, err = other.Producer(t.Context(), chanq.ProducerConfig{})
		require.ErrorContains(w, err, "SetMaxOpenConns(8)")
		_, err = chanq.Open[string](w.Soon(), w.DB, "other", chanq.Config{})
		require.NoError(w, err, "a call takes its connection as the application does")

		// The end of each producer or consumer releases its connections.
		require.NoError(w, p.Close(w.Soon()))
		require.NoError(w, p.Close(w.Soon()), "once")
		testdb.Produce(w, other, chanq.ProducerConfig{})
		require.NoError(w, c.Shutdown(w.Soon()))
		c = testdb.Start(w, other, chanq.ConsumerConfig{})
		w.DB.SetMaxOpenConns(8)
		testdb.Start(w, q, chanq.ConsumerConfig{})
		require.NoError(w, c.Shutdown(w.Soon()))
	})
}
