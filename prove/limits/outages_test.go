package limits_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// outages collects Availability events.
type outages struct {
	mu       sync.Mutex
	reported []string
	errs     []error
}

func (o *outages) add(e chanq.AvailabilityEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Up {
		o.reported = append(o.reported, e.Part+" up")
	} else {
		o.reported = append(o.reported, e.Part+" down")
		o.errs = append(o.errs, e.Err)
	}
}

func (o *outages) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.reported)
}

func (o *outages) heard(what string) bool { return slices.Contains(o.list(), what) }

func (o *outages) errors() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(o.errs...)
}

// everyWrite applies a fault to the writes of producers and consumers.
func (w *world) everyWrite(f faultdb.Fault) {
	st := w.Statements("work")
	claim := sqlbatch.ClaimParams{Rows: 1, Inline: sqlbatch.MaxBody}
	past := claim
	past.PastReaders = true
	writes := append(testdb.Stores(1, st.Enqueue), testdb.Stores(1, st.EnqueueNew)...)
	w.StrikeAll(f, append(writes, st.Claim(claim), st.Claim(past),
		st.Ack(nil), st.Extend([16]byte{}, nil, time.Second), st.SkipLocked().Ack(nil), st.SkipLocked().Extend([16]byte{}, nil, time.Second))...)
}

func TestStatementsThatAreAlwaysRolledBackAreAnOutage(t *testing.T) {
	onEach(t, func(w *world) {
		var reported outages
		q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: reported.add}})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		testdb.SendBy(w, p, testdb.Texts("a")...)
		w.everyWrite(faultdb.Fail(w.Failure(sqlbatch.RolledBack)))
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "b"})
			sent <- err
		}()
		w.Eventually("both have reported", func() bool { return reported.heard("producer down") && reported.heard("consumer down") })
		require.Len(w, reported.list(), 2, "once")
		require.Empty(w, sent)
		require.NoError(w, c.Err())
		w.Faults.Inject(nil)
		require.NoError(w, <-sent)
		for _, l := range testdb.Take(w, c, 2) {
			require.NoError(w, l.Ack())
		}
		w.Eventually("both outages have ended", func() bool { return reported.heard("producer up") && reported.heard("consumer up") })
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, p.Close(w.Soon()))
	})
}

// Another process opened the file and never ends its transaction.
func TestALockThatIsNeverReleasedIsAnOutage(t *testing.T) {
	testdb.Long(t) // for 20 s: another process needs a file
	t.Parallel()
	w := newWorld(t, testdb.SQLite)
	var reported outages
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: reported.add}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	testdb.SendBy(w, p, testdb.Texts("a", "b")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := testdb.Take(w, c, 1)[0]

	other, err := sql.Open("sqlite", w.Address)
	require.NoError(t, err)
	defer other.Close()
	holder, err := other.Conn(w.Soon())
	require.NoError(t, err)
	defer holder.Close()
	w.Eventually("the other process has the lock", func() bool {
		_, err := holder.ExecContext(w.Soon(), "BEGIN IMMEDIATE")
		return err == nil
	})
	require.NoError(t, l.Ack())
	w.Eventually("the consumer has reported", func() bool { return reported.heard("consumer down") })
	require.ErrorContains(t, reported.errors(), "SQLITE_BUSY")
	require.NoError(t, c.Err())
	_, err = holder.ExecContext(w.Soon(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, l.Wait(w.Soon()))
	require.NoError(t, testdb.Take(w, c, 1)[0].Ack())
	w.Eventually("the outage of the consumer has ended", func() bool { return reported.heard("consumer up") })
	require.NoError(t, c.Shutdown(w.Soon()))
	require.NoError(t, p.Close(w.Soon()))
	require.Zero(t, testdb.Counted(w, q))
}

// A SQLite file that cannot grow: deletes make room. A row grows a little when it is claimed, so
// these rows leave that much of their pages free.
func TestAFullDiskDelaysSendsUntilThereIsRoom(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.Memory, testdb.SQLiteFile}, func(w *testdb.World) {
		w.Open()
		fullDisk(w.T, &world{w})
	})
}

func fullDisk(t *testing.T, w *world) {
	var reported outages
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: reported.add}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	for range 100 {
		testdb.SendBy(w, p, testdb.Texts(strings.Repeat("x", 3900))...)
	}
	w.everyWrite(faultdb.After("PRAGMA max_page_count = 1")) // SQLite then uses the current number of pages
	sent := make(chan error, 1)
	go func() {
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: strings.Repeat("y", 100_000)})
		sent <- err
	}()
	w.Eventually("the producer has reported", func() bool { return reported.heard("producer down") })
	require.ErrorContains(t, reported.errors(), "full")
	require.Empty(t, sent, "the send waits")

	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	leases := testdb.Take(w, c, 100)
	dead := leases[0]
	require.NoError(t, dead.Nack(chanq.DeadLetter(nil)), "the dead-letter needs room in another table")
	for _, l := range leases[1:] {
		require.NoError(t, l.Ack())
	}
	require.NoError(t, <-sent, "the acks made room")
	require.NoError(t, dead.Wait(w.Soon()))
	w.Eventually("the outage of the producer has ended", func() bool { return reported.heard("producer up") })
	l := testdb.Take(w, c, 1)[0]
	require.Len(t, l.Body, 100_000)
	require.NoError(t, l.Ack())
	require.NoError(t, c.Shutdown(w.Soon()))
	require.NoError(t, p.Close(w.Soon()))
	require.Equal(t, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
}

// The error of a standby server is temporary. A read-only file is a permanent error, which is
// reported immediately.
func TestAReadOnlyDatabase(t *testing.T) {
	onEach(t, func(w *world) {
		var reported outages
		q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Availability: reported.add}})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		testdb.SendBy(w, p, testdb.Texts("held", "ready")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Prefetch: 1})
		held := testdb.Take(w, c, 1)[0]
		switch w.Engine.Dialect.Name() {
		case "sqlite":
			w.everyWrite(faultdb.After("PRAGMA query_only = 1"))
		case "postgres":
			w.everyWrite(faultdb.After("SET default_transaction_read_only = on"))
		case "sqlserver":
			w.everyWrite(faultdb.Fail(mssql.Error{Number: 3906, Message: "the database is read-only"}))
		}
		require.NoError(w, held.Ack())
		if w.Engine.Dialect.Name() == "sqlite" {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "not sent"})
			requireReadOnly(w, err)
			requireReadOnly(w, held.Wait(w.Soon()))
			for l := range c.C() { // until it is closed
				_ = l.Release() // fails like the ack
			}
			requireReadOnly(w, c.Err())
			requireReadOnly(w, c.Shutdown(w.Soon()))
			require.Empty(w, reported.list(), "it is an error, not an outage")
			w.everyWrite(faultdb.After("PRAGMA query_only = 0"))
			testdb.SendBy(w, p, testdb.Texts("after")...)
			entry, err := testdb.Admin(q).Get(w.Soon(), held.ID)
			require.NoError(w, err)
			require.Equal(w, chanqadmin.StateLeased, entry.State, "a message that could not be acked is redelivered when its lease expires")
			again := testdb.Start(w, q, chanq.ConsumerConfig{})
			require.Equal(w, "after", w.takeUnless(again, "ready").Body)
			require.NoError(w, again.Shutdown(w.Soon()))
			require.NoError(w, p.Close(w.Soon()))
			return
		}
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(w.Soon(), chanq.Message[string]{Body: "after"})
			sent <- err
		}()
		w.Eventually("both have reported", func() bool { return reported.heard("producer down") && reported.heard("consumer down") })
		require.Empty(w, sent)
		require.NoError(w, c.Err())
		if w.Engine.Dialect.Name() == "postgres" {
			w.everyWrite(faultdb.After("SET default_transaction_read_only = off"))
		} else {
			w.Faults.Inject(nil)
		}
		require.NoError(w, <-sent)
		require.NoError(w, held.Wait(w.Soon()))
		require.Equal(w, "after", w.takeUnless(c, "ready").Body)
		w.Eventually("both outages have ended", func() bool { return reported.heard("producer up") && reported.heard("consumer up") })
		require.NoError(w, c.Shutdown(w.Soon()))
		require.NoError(w, p.Close(w.Soon()))
		require.Zero(w, testdb.Counted(w, q))
	})
}

func requireReadOnly(w *world, err error) {
	w.Helper()
	var op *chanq.OpError
	require.ErrorAs(w, err, &op)
	require.False(w, op.Unknown)
	require.ErrorContains(w, err, "readonly")
}

// takeUnless acks leases with this body until one has another body, and returns that lease.
func (w *world) takeUnless(c *chanq.Consumer[string], body string) *chanq.Lease[string] {
	w.Helper()
	for {
		l := testdb.Take(w, c, 1)[0]
		require.NoError(w, l.Ack())
		if l.Body != body {
			return l
		}
	}
}
