package limits_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// outages collects what the Availability hook is told.
type outages struct {
	mu   sync.Mutex
	told []string
	errs []error
}

func (o *outages) add(e chanq.AvailabilityEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Up {
		o.told = append(o.told, e.Part+" up")
	} else {
		o.told = append(o.told, e.Part+" down")
		o.errs = append(o.errs, e.Err)
	}
}

func (o *outages) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.told)
}

func (o *outages) heard(what string) bool { return slices.Contains(o.list(), what) }

func (o *outages) errors() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(o.errs...)
}

// everyWrite strikes what a producer and a consumer write.
func (w *world) everyWrite(f faultdb.Fault) {
	st := w.statements("work")
	w.strike(f, st.Enqueue(make([]sqlbatch.Row, 1)), st.EnqueueNew(make([]sqlbatch.Row, 1)),
		st.Claim(sqlbatch.ClaimParams{Rows: 1, Suspects: true}), st.Ack(nil), st.Extend(nil, time.Second))
}

// deadlock is the engine's error of a statement that it has undone.
func (w *world) deadlock() error {
	switch w.dialect.Name() {
	case "sqlserver":
		return mssql.Error{Number: 1205, Message: "injected"}
	case "postgres":
		return state("40P01")
	}
	return code(5)
}

// state is an error as a driver of PostgreSQL makes it, code one of SQLite's.
type (
	state string
	code  int
)

func (s state) SQLState() string { return string(s) }
func (s state) Error() string    { return "injected: SQLSTATE " + string(s) }
func (c code) Code() int         { return int(c) }
func (c code) Error() string     { return fmt.Sprintf("injected: code %d", int(c)) }

func TestStatementsThatAreUndoneForEverAreAnOutage(t *testing.T) {
	onEach(t, func(w *world) {
		var told outages
		q := w.queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: told.add}})
		p := w.produce(q, chanq.ProducerConfig{})
		w.send(p, "a")
		w.everyWrite(faultdb.Fail(w.deadlock()))
		c := w.consume(q, chanq.ConsumerConfig{})
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.soon(), chanq.Message[string]{Body: "b"})
			sent <- err
		}()
		w.eventually("both have told", func() bool { return told.heard("producer down") && told.heard("consumer down") })
		require.Len(w, told.list(), 2, "once")
		require.Empty(w, sent)
		require.NoError(w, c.Err())
		w.faults.Inject(nil)
		require.NoError(w, <-sent)
		for _, l := range w.take(c, 2) {
			require.NoError(w, l.Ack())
		}
		w.eventually("both are back", func() bool { return told.heard("producer up") && told.heard("consumer up") })
		require.NoError(w, c.Shutdown(w.soon()))
		require.NoError(w, p.Close(w.soon()))
	})
}

// A process that opened the file and never ends its transaction.
func TestALockThatIsNeverGivenUpIsAnOutage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "queue.db")
	connector, err := embedded.Connector(path)
	require.NoError(t, err)
	w := newWorld(t, onSQLite, connector)
	var told outages
	q := w.queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: told.add}})
	p := w.produce(q, chanq.ProducerConfig{})
	w.send(p, "a", "b")
	c := w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := w.take(c, 1)[0]

	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer other.Close()
	holder, err := other.Conn(w.soon())
	require.NoError(t, err)
	defer holder.Close()
	w.eventually("it has the lock", func() bool {
		_, err := holder.ExecContext(w.soon(), "BEGIN IMMEDIATE")
		return err == nil
	})
	require.NoError(t, l.Ack())
	w.eventually("the consumer has told", func() bool { return told.heard("consumer down") })
	require.ErrorContains(t, told.errors(), "SQLITE_BUSY")
	require.NoError(t, c.Err())
	_, err = holder.ExecContext(w.soon(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, l.Wait(w.soon()))
	require.NoError(t, w.take(c, 1)[0].Ack())
	w.eventually("the consumer is back", func() bool { return told.heard("consumer up") })
	require.NoError(t, c.Shutdown(w.soon()))
	require.NoError(t, p.Close(w.soon()))
	require.Zero(t, w.counted(q))
}

// A SQLite file that may not grow: what is deleted makes room. A row grows a little when
// it is claimed, so these leave that much of their pages.
func TestAFullDiskHoldsUpSendsUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onSQLite, onSQLite.create(t))
	var told outages
	q := w.queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: told.add}})
	p := w.produce(q, chanq.ProducerConfig{})
	for range 100 {
		w.send(p, strings.Repeat("x", 3900))
	}
	w.everyWrite(faultdb.After("PRAGMA max_page_count = 1")) // SQLite takes it for: as many as there are
	sent := make(chan error, 1)
	go func() {
		_, err := p.Send(w.soon(), chanq.Message[string]{Body: strings.Repeat("y", 100_000)})
		sent <- err
	}()
	w.eventually("the producer has told", func() bool { return told.heard("producer down") })
	require.ErrorContains(t, told.errors(), "full")
	require.Empty(t, sent, "it waits")

	c := w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	for _, l := range w.take(c, 100) {
		require.NoError(t, l.Ack())
	}
	require.NoError(t, <-sent, "what was acked made room")
	w.eventually("the producer is back", func() bool { return told.heard("producer up") })
	l := w.take(c, 1)[0]
	require.Len(t, l.Body, 100_000)
	require.NoError(t, l.Ack())
	require.NoError(t, c.Shutdown(w.soon()))
	require.NoError(t, p.Close(w.soon()))
	require.Zero(t, w.counted(q))
}

// What a server answers while it is a standby passes; a file that may not be
// written does not, and is said at once.
func TestAReadOnlyDatabase(t *testing.T) {
	onEach(t, func(w *world) {
		var told outages
		q := w.queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: told.add}})
		p := w.produce(q, chanq.ProducerConfig{})
		w.send(p, "held", "ready")
		c := w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Hour, Prefetch: 1})
		held := w.take(c, 1)[0]
		switch w.dialect.Name() {
		case "sqlite":
			w.everyWrite(faultdb.After("PRAGMA query_only = 1"))
		case "postgres":
			w.everyWrite(faultdb.After("SET default_transaction_read_only = on"))
		case "sqlserver":
			w.everyWrite(faultdb.Fail(mssql.Error{Number: 3906, Message: "the database is read-only"}))
		}
		require.NoError(w, held.Ack())
		if w.dialect.Name() == "sqlite" {
			_, err := p.Send(w.soon(), chanq.Message[string]{Body: "not sent"})
			requireReadOnly(w, err)
			requireReadOnly(w, held.Wait(w.soon()))
			for l := range c.C() { // until it is closed
				_ = l.Release() // fails like the other
			}
			requireReadOnly(w, c.Err())
			require.NoError(w, c.Shutdown(w.soon()))
			require.Empty(w, told.list(), "it is an error, not an outage")
			w.everyWrite(faultdb.After("PRAGMA query_only = 0"))
			w.send(p, "after")
			entry, err := q.Get(w.soon(), held.ID)
			require.NoError(w, err)
			require.Equal(w, chanq.StateLeased, entry.State, "what could not be acked is delivered again when its lease ends")
			again := w.consume(q, chanq.ConsumerConfig{})
			require.Equal(w, "after", w.takeUnless(again, "ready").Body)
			require.NoError(w, again.Shutdown(w.soon()))
			require.NoError(w, p.Close(w.soon()))
			return
		}
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.soon(), chanq.Message[string]{Body: "after"})
			sent <- err
		}()
		w.eventually("both have told", func() bool { return told.heard("producer down") && told.heard("consumer down") })
		require.Empty(w, sent)
		require.NoError(w, c.Err())
		if w.dialect.Name() == "postgres" {
			w.everyWrite(faultdb.After("SET default_transaction_read_only = off"))
		} else {
			w.faults.Inject(nil)
		}
		require.NoError(w, <-sent)
		require.NoError(w, held.Wait(w.soon()))
		require.Equal(w, "after", w.takeUnless(c, "ready").Body)
		w.eventually("both are back", func() bool { return told.heard("producer up") && told.heard("consumer up") })
		require.NoError(w, c.Shutdown(w.soon()))
		require.NoError(w, p.Close(w.soon()))
		require.Zero(w, w.counted(q))
	})
}

func requireReadOnly(w *world, err error) {
	w.Helper()
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.False(w, op.Unknown)
	require.ErrorContains(w, err, "readonly")
}

// takeUnless acks leases until one has another body.
func (w *world) takeUnless(c *chanq.Consumer[string], body string) *chanq.Lease[string] {
	w.Helper()
	for {
		l := w.take(c, 1)[0]
		require.NoError(w, l.Ack())
		if l.Body != body {
			return l
		}
	}
}
