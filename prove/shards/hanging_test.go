package shards_test

import (
	"context"
	"database/sql"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/mssqltest/memnet"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// within requires that a call returned long before the context of soon would have ended.
func within(t require.TestingT, began time.Time) {
	require.Less(t, time.Since(began), testdb.Patience/2)
}

// TestErrorsOfCallsForAllShardsNameTheShard in which the error occurred.
func TestErrorsOfCallsForAllShardsNameTheShard(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		q := w.queue(w.brief(chanq.Config{}))
		w.send(q, of(q, 1, 2, "a")...)
		cfg := quick
		if w.places[0].Engine.Bubble {
			cfg.LeaseFor = 2 * time.Second
		} else {
			cfg.LeaseFor = time.Minute // longer than the calls below
		}
		c, p := w.start(q, cfg), w.produce(q, chanq.ProducerConfig{})
		leases := testdb.Take(w, c, 2)
		w.silent(1)
		w.Cleanup(w.Heal)
		p.C() <- of(q, 1, 3, "b")[2]
		require.NoError(w, leases[0].Ack())
		for name, call := range map[string]func(context.Context) error{"Flush": c.Flush, "Flush of a producer": p.Flush} {
			ctx, cancel := context.WithTimeout(w.soon(), w.soonest(300*time.Millisecond))
			err := call(ctx)
			cancel()
			require.ErrorIs(w, err, context.DeadlineExceeded, name)
			require.ErrorContains(w, err, "orders/place1", name)
			require.NotContains(w, err.Error(), "place0", name)
		}
		ctx, cancel := context.WithTimeout(w.soon(), w.soonest(300*time.Millisecond))
		defer cancel()
		err := c.Shutdown(ctx)
		require.ErrorContains(w, err, "orders/place1")
		require.NotContains(w, err.Error(), "place0", "the other shards have ended")
	})
}

// deaf returns a *sql.DB for a server that accepts connections and sends nothing.
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
	w.Cleanup(func() { // a driver might wait for the greeting despite its context
		_ = listener.Close()
		close(ended)
		conns.Wait()
	})
	return db
}

func TestAQueueOpensAlthoughAShardDoesNotAnswer(t *testing.T) {
	t.Parallel()
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		w := newWorld(t, sqlite, server, sqlite)
		w.queue(chanq.Config{})
		list := w.shards()
		list[1].DB = deaf(w, 1)
		began := time.Now()
		q, err := chanqshards.Open[string](w.soon(), list, "orders", chanq.Config{})
		require.NoError(w, err, "the settings of the other shards are used")
		within(w, began)
		testdb.Send(w, w.shard(q, 0), chanq.Message[string]{Body: "a"})
		short, cancel := context.WithTimeout(w.soon(), w.soonest(time.Second))
		defer cancel()
		_, err = q.Empty(short)
		require.Equal(w, "orders/place1", opError(w, err).Queue)

		short, cancel = context.WithTimeout(w.soon(), time.Second) // less than Open waits for a shard
		defer cancel()
		began = time.Now()
		_, err = chanqshards.Open[string](short, list, "orders", chanq.Config{})
		require.ErrorContains(w, err, "orders/place1", "a call that does not wait returns an error")
		within(w, began)
		short, cancel = context.WithTimeout(w.soon(), w.soonest(time.Second))
		defer cancel()
		began = time.Now()
		require.ErrorContains(w, chanqshards.Migrate(short, list, "orders", chanq.Config{}), "orders/place1")
		within(w, began)
	})
}

// stuckOpening opens a queue while the driver of one place hangs in the statement that opens its shard. struck receives each later attempt;
// release lets the driver return.
func (w *world) stuckOpening(queue string, place int) (q *chanqshards.Queue[string], struck <-chan struct{}, release func()) {
	w.Helper()
	attempts := make(chan struct{}, 100)
	inject := func(fault faultdb.Fault) {
		opens := w.places[place].Statements(queue).Version()
		w.places[place].Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if !testdb.Runs(op, opens) {
				return faultdb.Fault{}
			}
			attempts <- struct{}{}
			return fault
		})
	}
	inject(faultdb.Hang())
	q, err := chanqshards.Open[string](w.soon(), w.shards(), queue, chanq.Config{})
	require.NoError(w, err, "the other shards respond")
	for len(attempts) > 0 {
		<-attempts
	}
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	w.Cleanup(release)
	inject(faultdb.Stick(gate))
	return q, attempts, release
}

// The calls are Shutdown of a consumer, and Close of a producer that gives up.
func TestShutdownIsBoundedAlthoughAShardHangsWhileOpening(t *testing.T) {
	withServer(t, func(t *testing.T, sqlite, server testdb.Engine) {
		w := newWorld(t, sqlite, server)
		w.queue(chanq.Config{})
		q, struck, release := w.stuckOpening("orders", 1)
		c, err := q.Consume(w.soon(), quick)
		require.NoError(w, err)
		p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
		require.NoError(w, err)
		testdb.Receive(w, struck, "an attempt to open the shard")
		testdb.Receive(w, struck, "an attempt to open the shard")
		p.C() <- of(q, 1, 1, "a")[0]
		ended := make(chan error, 1)
		go func() { ended <- c.Shutdown(w.soon()) }()
		err = testdb.Receive(w, ended, "Shutdown")
		require.ErrorIs(w, err, chanq.ErrStopped)
		require.Equal(w, "orders/place1", opError(w, err).Queue)
		ctx, cancel := context.WithTimeout(w.soon(), time.Second)
		defer cancel()
		go func() { ended <- p.Close(ctx) }()
		var unsent *chanq.UnsentError[string]
		require.ErrorAs(w, testdb.Receive(w, ended, "Close"), &unsent)
		require.Len(w, unsent.Unsent, 1)
		release()
	})
}

// TestMessagesWithoutAKeyAvoidAnUnavailableShard although it has fewer waiting messages than the others.
func TestMessagesWithoutAKeyAvoidAnUnavailableShard(t *testing.T) {
	onSQLite(t, func(t *testing.T, sqlite testdb.Engine) {
		w := newWorld(t, sqlite, sqlite, sqlite)
		down := make(chan struct{})
		var once sync.Once
		q := w.queue(chanq.Config{StatementTimeout: w.soonest(time.Second), Hooks: chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) {
			if !e.Up {
				once.Do(func() { close(down) })
			}
		}}})
		p := w.produce(q, chanq.ProducerConfig{BatchRows: 5})
		w.gone(1)
		w.Cleanup(w.Heal)
		p.C() <- of(q, 1, 1, "own")[0]
		testdb.Receive(w, down, "the producer has detected the outage")
		_, err := p.SendBatch(w.soon(), bodies("anywhere", 60)...)
		require.NoError(w, err, "after the first five messages the unavailable place has the fewest to store")
	})
}
