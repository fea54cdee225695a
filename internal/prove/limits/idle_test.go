package limits_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
)

// inUse is the most connections that a *sql.DB has in use at once, and that are open in
// the database, over a time.
func (w *world) inUse(d time.Duration) (inUse, open int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < d; <-tick.C {
		now, _ := w.faults.Conns()
		inUse, open = max(inUse, w.db.Stats().InUse), max(open, now)
	}
	return inUse, open
}

// Twenty queues on one *sql.DB, each with a consumer that looks once a second and says
// more often than by default that it is there. What a minute would show comes here in
// seconds: LeaseFor is a tenth of its default.
func TestIdleProducersAndConsumersHoldNoConnection(t *testing.T) {
	const queues = 20
	const most = 3 // of what is in use; the *sql.DB keeps two more open for whoever asks next
	onEach(t, func(w *world) {
		var producers []*chanq.Producer[string]
		var consumers []*chanq.Consumer[string]
		for i := range queues {
			q := w.queue("work_"+string(rune('a'+i)), chanq.Config{})
			producers = append(producers, w.produce(q, chanq.ProducerConfig{}))
			consumers = append(consumers, w.consume(q, chanq.ConsumerConfig{LeaseFor: 3 * time.Second}))
		}
		looks := func() (n int64) {
			for _, c := range consumers {
				n += c.Stats().Looks
			}
			return n
		}
		idle := func(when string) {
			inUse, open := 0, 0
			for range 3 { // a machine that stands still for half a second looks like a statement that hangs
				before := looks()
				inUse, open = w.inUse(8 * time.Second)
				w.Logf("%s: %d in use, %d open, %d looks", when, inUse, open, looks()-before)
				require.Greater(w, looks()-before, int64(3*queues), "they do look")
				if inUse <= most && open <= most+2 {
					return
				}
			}
			require.LessOrEqual(w, inUse, most, when)
			require.LessOrEqual(w, open, most+2, when)
		}
		idle("never used")
		var working sync.WaitGroup
		for i := range queues {
			working.Go(func() {
				w.send(producers[i], make([]string, 20)...)
				for _, l := range w.take(consumers[i], 20) {
					if err := l.Ack(); err != nil {
						w.Errorf("ack: %v", err)
					}
				}
				if err := consumers[i].Flush(w.soon()); err != nil {
					w.Errorf("flush: %v", err)
				}
			})
		}
		working.Wait()
		w.eventually("what nobody needs any more is closed, without anybody asking", func() bool {
			return w.db.Stats().InUse <= most
		})
		idle("used before")
		for i := range queues {
			require.NoError(w, producers[i].Close(w.soon()))
			require.NoError(w, consumers[i].Shutdown(w.soon()))
		}
		require.Zero(w, w.db.Stats().InUse)
	})
}

// A claim that hangs, in one queue, while claims of another wait for nothing; whether
// the *sql.DB has a limit, which the application has used up, or not.
func TestAQueueThatHangsKeepsNoOtherWaiting(t *testing.T) {
	for _, limited := range []bool{false, true} {
		name := map[bool]string{false: "WithoutALimit", true: "WhereTheApplicationHasUsedUpTheLimit"}[limited]
		t.Run(name, func(t *testing.T) {
			onEach(t, func(w *world) {
				if w.dialect.Traits().OneWriter {
					w.Skip("all queues of a SQLite database share one connection")
				}
				stuck, other := w.queue("stuck", chanq.Config{}), w.queue("other", chanq.Config{})
				const floors = 2 + 2 + 2 + 1
				if limited {
					w.db.SetMaxOpenConns(floors + 1)
				}
				p := w.produce(other, chanq.ProducerConfig{})
				st := w.statements("stuck")
				gate, hung := make(chan struct{}), make(chan struct{})
				var once sync.Once
				w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
					if !runs(op, st.NextDue()) {
						return faultdb.Fault{}
					}
					once.Do(func() { close(hung) })
					return faultdb.Stick(gate)
				})
				w.Cleanup(func() { w.faults.Inject(nil) })
				defer close(gate)
				w.consume(stuck, chanq.ConsumerConfig{StatementTimeout: 10 * time.Minute})
				c := w.consume(other, chanq.ConsumerConfig{})
				<-hung
				if limited {
					w.eventually("the floors are connected", func() bool { return w.db.Stats().InUse >= floors })
					conn, err := w.db.Conn(w.soon())
					require.NoError(w, err)
					defer conn.Close()
				}
				for range 20 {
					began := time.Now()
					w.send(p, "a")
					l := w.take(c, 1)[0]
					require.NoError(w, l.Ack())
					require.NoError(w, l.Wait(w.soon()))
					require.Less(w, time.Since(began), 2*time.Second)
				}
			})
		})
	}
}
