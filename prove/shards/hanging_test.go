package shards_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/memnet"
	"github.com/chanq/chanq/sqlbatch"
)

// within says that a call returned long before the context of soon would have ended.
func within(t require.TestingT, began time.Time) {
	require.Less(t, time.Since(began), testdb.Patience/2)
}

// TestOperatorsDoNotWaitForAPlaceThatHangs where another one has what they ask for.
func TestOperatorsDoNotWaitForAPlaceThatHangs(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		ids := make([][]chanq.ID, count)
		for i := range count {
			ids[i] = testdb.Send(w, q, of(q, i, 5, "a")...)
		}
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		for _, l := range testdb.Take(w, c, 5*count) {
			require.NoError(w, l.DeadLetter(errors.New("no")))
		}
		require.NoError(w, c.Shutdown(w.soon()))
		const hangs = 0 // that is asked first, where one is asked after the other
		w.silent(hangs)
		began := time.Now()
		e, err := q.Get(w.soon(), ids[2][0])
		require.NoError(w, err)
		require.Equal(w, ids[2][0], e.ID)
		within(w, began)

		short := func() context.Context {
			ctx, cancel := context.WithTimeout(w.soon(), testdb.Slowness*time.Second)
			w.Cleanup(cancel)
			return ctx
		}
		_, err = q.Get(short(), ids[hangs][0])
		require.Equal(w, "place0", opError(w, err).Shard)
		require.NotErrorIs(w, err, chanq.ErrNotFound, "nobody knows")

		n, err := q.Redrive(short(), 3)
		require.Equal(w, "place0", opError(w, err).Shard)
		require.Equal(w, 6, n, "what the others have is redriven, up to the limit of each")
		n, err = q.Redrive(short(), 0)
		require.Equal(w, "place0", opError(w, err).Shard)
		require.Equal(w, 4, n)

		w.Heal()
		n, err = q.Redrive(w.soon(), 4)
		require.NoError(w, err)
		require.Equal(w, 4, n)
	})
}

// TestALimitIsThatOfEachShard of which one has nothing.
func TestALimitIsThatOfEachShard(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue(chanq.Config{})
		testdb.Send(w, q, of(q, 0, 9, "a")...)
		testdb.Send(w, q, of(q, 2, 4, "a")...)
		for _, l := range testdb.Lease(w, q, 13, time.Minute) {
			require.NoError(w, l.DeadLetter(errors.New("no")))
		}
		for _, step := range []struct{ limit, moved int }{{1, 2}, {5, 8}, {11, 3}} { // of 9 and 4: 1+1, 5+3, 3+0
			n, err := q.Redrive(w.soon(), step.limit)
			require.NoError(w, err)
			require.Equal(w, step.moved, n)
		}
		require.Equal(w, chanq.Stats{Ready: 13}, testdb.Counted(w, q))
	})
}

// TestErrorsOfCallsForAllNameTheShard that they are of.
func TestErrorsOfCallsForAllNameTheShard(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		testdb.Send(w, q, of(q, 1, 2, "a")...)
		cfg := quick
		cfg.LeaseFor = 2 * time.Second
		c, p := testdb.Start(w, q, cfg), testdb.Produce(w, q, chanq.ProducerConfig{StatementTimeout: time.Second})
		leases := testdb.Take(w, c, 2)
		w.silent(1)
		w.Cleanup(w.Heal)
		p.C() <- of(q, 1, 3, "b")[2]
		require.NoError(w, leases[0].Ack())
		for name, call := range map[string]func(context.Context) error{"Flush": c.Flush, "Flush of a producer": p.Flush, "ReleaseAll": c.ReleaseAll} {
			ctx, cancel := context.WithTimeout(w.soon(), 300*time.Millisecond)
			err := call(ctx)
			cancel()
			require.Equal(w, "place1", opError(w, err).Shard, name)
			require.ErrorIs(w, err, context.DeadlineExceeded, name)
			require.ErrorContains(w, err, "(shard place1)", name)
		}
		ctx, cancel := context.WithTimeout(w.soon(), 300*time.Millisecond)
		defer cancel()
		err := c.Shutdown(ctx)
		require.Equal(w, "place1", opError(w, err).Shard)
		require.NotContains(w, err.Error(), "place0", "the others have ended")
	})
}

// deaf accepts connections and says nothing.
func deaf(w *world, place int) *sql.DB {
	var listener net.Listener = memnet.Listen()
	if !w.places[place].Engine.Bubble {
		var err error
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w, err)
	}
	var conns sync.WaitGroup
	ended := make(chan struct{})
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { <-ended; _ = conn.Close() })
		}
	})
	db := w.places[place].Through(listener.Addr())
	w.Cleanup(func() { // a driver may wait for the greeting whatever its context says
		_ = listener.Close()
		close(ended)
		conns.Wait()
	})
	return db
}

// TestAQueueOpensBesideAPlaceThatAcceptsAndSaysNothing.
func TestAQueueOpensBesideAPlaceThatAcceptsAndSaysNothing(t *testing.T) {
	t.Parallel()
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		w := newWorld(t, sqlite, server, sqlite)
		w.queue(chanq.Config{})
		list := w.shards()
		list[1].DB = deaf(w, 1)
		began := time.Now()
		q, err := chanq.OpenShards[string](w.soon(), list, "orders", chanq.Config{})
		require.NoError(w, err, "it is taken for what the others say")
		within(w, began)
		testdb.Send(w, q.Shard(0), chanq.Message[string]{Body: "a"})
		short, cancel := context.WithTimeout(w.soon(), time.Second)
		defer cancel()
		s, err := q.Stats(short)
		require.Equal(w, "place1", opError(w, err).Shard)
		require.Equal(w, 1, s.Ready)

		short, cancel = context.WithTimeout(w.soon(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = chanq.OpenShards[string](short, list, "orders", chanq.Config{})
		require.ErrorContains(w, err, "(shard place1)", "a caller who does not wait is told")
		within(w, began)
		short, cancel = context.WithTimeout(w.soon(), time.Second)
		defer cancel()
		began = time.Now()
		require.ErrorContains(w, chanq.MigrateShards(short, list, "orders", chanq.Config{}), "(shard place1)")
		within(w, began)
	})
}

// TestWhatMayGoAnywhereDoesNotGoWhereNobodyAnswers, though less waits there than elsewhere.
func TestWhatMayGoAnywhereDoesNotGoWhereNobodyAnswers(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		down := make(chan struct{})
		var once sync.Once
		q := w.queue(chanq.Config{Hooks: chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) {
			if !e.Up {
				once.Do(func() { close(down) })
			}
		}}})
		p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 5, StatementTimeout: time.Second})
		w.gone(1)
		w.Cleanup(w.Heal)
		p.C() <- of(q, 1, 1, "own")[0]
		testdb.Receive(w, down, "the producer knows")
		_, err := p.SendBatch(w.soon(), bodies("anywhere", 60)...)
		require.NoError(w, err, "after the first five the place that is away has the least to store")
	})
}

// TestAPanicInOneShardEndsTheConsumer: of the driver, in a heartbeat, which is made again whatever
// becomes of it.
func TestAPanicInOneShardEndsTheConsumer(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(chanq.Config{})
		join := w.places[1].Statements("orders").Join(sqlbatch.Member{})
		w.places[1].Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.Runs(op, join) {
				return faultdb.Panic(errors.New("no"))
			}
			return faultdb.Fault{}
		})
		c := testdb.Start(w, q, quick)
		testdb.Receive(w, c.Done(), "the end")
		require.Equal(w, "place1", opError(w, c.Err()).Shard)
		require.ErrorContains(w, c.Err(), "panic: no")
	})
}
