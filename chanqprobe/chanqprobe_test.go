package chanqprobe_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqprobe"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w.Code, w.Body.String()
}

func TestAProgramIsReadyUnlessItsDatabaseIsUnavailable(t *testing.T) {
	p := chanqprobe.New()
	is := func(handler http.Handler, status int, text string) {
		t.Helper()
		code, body := get(handler)
		require.Equal(t, status, code)
		require.Equal(t, text, body)
	}
	h := p.Hooks()
	is(p.Ready(), 200, "ok\n")
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer"})
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer", Up: true})
	is(p.Ready(), 503, "mail: the database does not answer a consumer\n")
	is(p.Live(), 200, "ok\n")
	h.Availability(chanq.AvailabilityEvent{Queue: "mail", Part: "consumer", Up: true})
	is(p.Ready(), 200, "ok\n")
}

func TestAProgramIsReadyWithOneUnavailableShard(t *testing.T) {
	p := chanqprobe.New()
	p.Shards("mail", 2)
	tell := func(shard string, up bool) int {
		p.Hooks().Availability(chanq.AvailabilityEvent{Queue: "mail/" + shard, Part: "producer", Up: up})
		code, _ := get(p.Ready())
		return code
	}
	require.Equal(t, 200, tell("east", false))
	require.Equal(t, 200, tell("east", false), "another producer")
	require.Equal(t, 503, tell("west", false))
	require.Equal(t, 503, tell("east", true))
	require.Equal(t, 200, tell("east", true))

	p = chanqprobe.New()
	require.Equal(t, 503, tell("east", false), "without Shards each is a queue")
}

func TestAConsumerThatEndedWithAnErrorIsNotAlive(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
	require.NoError(t, err)
	defer db.Close()
	p := chanqprobe.New()
	var log strings.Builder
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	consume := func(queue string) *chanq.Consumer[string] {
		require.NoError(t, chanq.Migrate(t.Context(), db, queue, chanq.Config{}))
		q, err := chanq.Open[string](t.Context(), db, queue, chanq.Config{Hooks: p.Hooks()})
		require.NoError(t, err)
		c, err := q.Consume(t.Context(), chanq.ConsumerConfig{})
		require.NoError(t, err)
		p.Add(queue, c)
		return c
	}
	stops, breaks := consume("stops"), consume("breaks")
	defer func() {
		require.ErrorIs(t, breaks.Shutdown(t.Context()), chanq.ErrNoSchema)
		require.NoError(t, stops.Shutdown(t.Context()))
	}()
	code, _ := get(p.Live())
	require.Equal(t, 200, code)
	stops.Stop()
	code, body := get(p.Ready())
	require.Equal(t, 503, code)
	require.Equal(t, "stops is stopping or has ended\n", body)
	code, _ = get(p.Live())
	require.Equal(t, 200, code, "it was stopped on purpose")

	_, err = db.ExecContext(t.Context(), "DROP TABLE chanq_breaks")
	require.NoError(t, err)
	<-breaks.Done()
	require.Eventually(t, func() bool { code, body = get(p.Live()); return code == 500 }, time.Minute, time.Millisecond)
	require.Equal(t, "breaks has ended: the queue's tables are missing, or older than the program: run chanq migrate\n", body)
	get(p.Live())
	require.Equal(t, 1, strings.Count(log.String(), "chanq migrate breaks"), "whole, once, in the log: %s", log.String())
}

// ended is a consumer that has ended.
type ended struct{ err error }

func (e ended) Done() <-chan struct{} { return nil }
func (e ended) Err() error            { return e.err }

func TestErrorsOfDatabasesAreNotServed(t *testing.T) {
	var log strings.Builder
	p := chanqprobe.New()
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	p.Add("mail", ended{errors.New("user shop at 10.1.2.3 may not")})
	for range 2 {
		code, body := get(p.Live())
		require.Equal(t, 500, code)
		require.Equal(t, "mail has ended: the database refuses a statement that it needs: the program's log contains the error\n", body)
	}
	require.Equal(t, 1, strings.Count(log.String(), "user shop at 10.1.2.3 may not"))
}

// If a consumer is stopped during an outage and replaced, the program is ready.
func TestAnOutageEndsWithItsConsumer(t *testing.T) { testdb.Run(t, testdb.Memory, outageEnds) }

func outageEnds(w *testdb.World) {
	p := chanqprobe.New()
	q := w.Queue("mail", chanq.Config{Hooks: p.Hooks()})
	producer := testdb.Produce(w, q, chanq.ProducerConfig{})
	holder, err := w.DB.BeginTx(w.Soon(), nil) // blocks all other writers
	require.NoError(w, err)
	sent := make(chan error, 1)
	go func() { // ends with Close
		_, err := producer.Send(w.Context(), chanq.Message[string]{})
		sent <- err
	}()
	w.Eventually("the program is not ready", func() bool { code, _ := get(p.Ready()); return code == 503 })
	over, cancel := context.WithCancel(w.Context())
	cancel()
	_ = producer.Close(over) // Send returns the error
	require.Error(w, <-sent)
	w.Eventually("the program is ready", func() bool { code, _ := get(p.Ready()); return code == 200 })
	require.NoError(w, holder.Rollback())
	time.Sleep(time.Minute) // for the statements that Close has given up
}

// TestAProgramThatOnlySendsInTransactionsIsReadyUnlessItsDatabaseIsUnavailable: no producer and no consumer would detect
// it.
func TestAProgramThatOnlySendsInTransactionsIsReadyUnlessItsDatabaseIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &pinged{}
		db := sql.OpenDB(c)
		defer db.Close()
		p := chanqprobe.New()
		ctx, cancel := context.WithCancel(t.Context())
		p.Watch(ctx, "orders", db)
		is := func(away bool, status int, text string) {
			t.Helper()
			c.away.Store(away)
			time.Sleep(16 * time.Second)
			code, body := get(p.Ready())
			require.Equal(t, status, code)
			require.Equal(t, text, body)
		}
		is(false, 200, "ok\n")
		is(true, 503, "orders: the database does not answer\n")
		is(false, 200, "ok\n")
		cancel()
		synctest.Wait()
		is(true, 200, "ok\n")
	})
}

// TestAFullPoolIsNoOutage: a ping waits for a connection.
func TestAFullPoolIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(&pinged{})
		defer db.Close()
		db.SetMaxOpenConns(2)
		p := chanqprobe.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.Watch(ctx, "orders", db)
		ready := func(status int, text string) {
			t.Helper()
			time.Sleep(16 * time.Second)
			code, body := get(p.Ready())
			require.Equal(t, status, code)
			require.Equal(t, text, body)
		}
		ready(200, "ok\n")
		var held []*sql.Conn
		for range 2 {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			held = append(held, conn)
		}
		ready(503, "orders: all 2 connections of its *sql.DB were in use for 5s: raise SetMaxOpenConns, or hold connections for less time\n")
		for _, conn := range held {
			require.NoError(t, conn.Close())
		}
		ready(200, "ok\n")
	})
}

// pinged is a driver whose pings succeed or hang.
type pinged struct{ away atomic.Bool }

func (c *pinged) Connect(context.Context) (driver.Conn, error) { return pingedConn{c}, nil }
func (c *pinged) Driver() driver.Driver                        { return nil }

type pingedConn struct{ *pinged }

func (c pingedConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c pingedConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c pingedConn) Close() error                        { return nil }

func (c pingedConn) Ping(ctx context.Context) error {
	if c.away.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}
