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
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// connections is the least that a consumer, a producer and an application need.
const connections = 5 + 1 + 1

// number is the parameter of a statement, as the dialect writes it.
func (w *world) number(n int) string {
	return map[string]string{"sqlite": "?", "postgres": "$", "sqlserver": "@p"}[w.dialect.Name()] + strconv.Itoa(n)
}

// Each handler runs queries of its own and waits for its settle, with a
// connection in hand: 200 of them on what the pool leaves.
func TestManyHandlersShareFewConnections(t *testing.T) {
	onEach(t, func(w *world) {
		const handlers, messages = 200, 2000
		q := w.queue("work", chanq.Config{})
		w.exec(`CREATE TABLE handled (body varchar(20) NOT NULL)`)
		w.db.SetMaxOpenConns(connections)
		p := w.produce(q, chanq.ProducerConfig{})
		c := w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		insert := `INSERT INTO handled (body) VALUES (` + w.number(1) + `)`
		var running, most, done atomic.Int64
		var handling sync.WaitGroup
		handling.Go(func() {
			_ = c.Handle(handlers, func(ctx context.Context, l *chanq.Lease[string]) error {
				now := running.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				defer running.Add(-1)
				conn, err := w.db.Conn(ctx)
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
		// Senders share them, too.
		var sending sync.WaitGroup
		soon := w.soon()
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
		w.eventually("all are handled", func() bool { return done.Load() == messages })
		require.NoError(w, c.Shutdown(w.soon()))
		handling.Wait()
		require.NoError(w, p.Close(w.soon()))
		require.Zero(w, w.counted(q))
		var rows int
		require.NoError(w, w.db.QueryRow(`SELECT count(*) FROM handled`).Scan(&rows))
		require.Equal(w, messages, rows, "each was handled once")
		_, conns := w.faults.Conns()
		require.LessOrEqual(w, conns, connections)
		w.Logf("%d handlers at once at most, %d connections", most.Load(), conns)
	})
}

// Handlers that hold every connection which is left, and wait for their settles
// before they give one back, have not taken those of the settles, even while the
// claimer's own is in use by a statement that hangs.
func TestHandlersCannotTakeTheConnectionsOfTheirSettles(t *testing.T) {
	onEach(t, func(w *world) {
		if w.dialect.Traits().OneWriter {
			w.Skip("SQLite settles by the one connection that claims")
		}
		q := w.queue("work", chanq.Config{})
		w.db.SetMaxOpenConns(connections)
		p := w.produce(q, chanq.ProducerConfig{})
		w.send(p, make([]string, 20)...)
		c := w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Hour, StatementTimeout: 10 * time.Minute})
		leases := w.take(c, 20)
		hung, goOn := new(atomic.Bool), make(chan struct{})
		st := w.statements("work")
		w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if runs(op, st.NextDue()) || runs(op, st.Claim(sqlbatch.ClaimParams{Rows: 1, Suspects: true})) {
				hung.Store(true)
				return faultdb.Hold(goOn)
			}
			return faultdb.Fault{}
		})
		w.eventually("the claimer hangs", hung.Load)
		var handled sync.WaitGroup
		allInUse, soon := make(chan struct{}), w.soon()
		for _, l := range leases {
			handled.Go(func() {
				conn, err := w.db.Conn(soon)
				if err != nil {
					w.Errorf("no connection for a handler: %v", err)
					return
				}
				defer conn.Close()
				<-allInUse
				if err := l.Ack(); err != nil {
					w.Errorf("ack: %v", err)
				}
				if err := l.Wait(soon); err != nil {
					w.Errorf("wait: %v", err)
				}
			})
		}
		w.eventually("every connection is in use", func() bool { return w.db.Stats().InUse == connections })
		close(allInUse)
		handled.Wait()
		require.False(w, w.Failed())
		close(goOn)
		require.NoError(w, c.Shutdown(w.soon()))
		require.NoError(w, p.Close(w.soon()))
		require.Zero(w, w.counted(q))
	})
}

func TestConnectionsAreCountedOverAllThatRuns(t *testing.T) {
	onEach(t, func(w *world) {
		if w.dialect.Traits().OneWriter {
			w.Skip("all queues of a SQLite database share one connection")
		}
		q := w.queue("work", chanq.Config{})
		other := w.queue("other", chanq.Config{})
		w.db.SetMaxOpenConns(connections)
		p := w.produce(q, chanq.ProducerConfig{})
		c := w.consume(q, chanq.ConsumerConfig{})
		_, err := other.Consume(w.soon(), chanq.ConsumerConfig{})
		require.ErrorContains(w, err, "consume other: the *sql.DB allows 7 open connections: chanq keeps 7 of them for itself (2 for claims, 2 for settles, 2 for extensions, 1 for sends, shared by all queues on it), and the application needs one; call SetMaxOpenConns(8) or more")
		_, err = other.Producer(chanq.ProducerConfig{})
		require.ErrorContains(w, err, "SetMaxOpenConns(8)")
		_, err = chanq.Open[string](w.soon(), w.db, "other", chanq.Config{})
		require.NoError(w, err, "a call takes its connection as the application does")

		// What ends gives back.
		require.NoError(w, p.Close(w.soon()))
		require.NoError(w, p.Close(w.soon()), "once")
		w.produce(other, chanq.ProducerConfig{})
		require.NoError(w, c.Shutdown(w.soon()))
		c = w.consume(other, chanq.ConsumerConfig{})
		w.db.SetMaxOpenConns(8)
		w.consume(q, chanq.ConsumerConfig{})
		require.NoError(w, c.Shutdown(w.soon()))
	})
}
