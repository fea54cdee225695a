package limits_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// inUse returns the maximum numbers of connections that the *sql.DB has in use, and that are open
// in the database, during d.
func (w *world) inUse(d time.Duration) (inUse, open int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < d; <-tick.C {
		now, _ := w.Faults.Conns()
		inUse, open = max(inUse, w.DB.Stats().InUse), max(open, now)
	}
	return inUse, open
}

// Twenty queues on one *sql.DB, each with a consumer that polls once per second and sends
// heartbeats more often than by default. On real clocks it takes more than a minute until
// connections are closed that were used: once a week.
func TestIdleProducersAndConsumersHoldNoConnection(t *testing.T) {
	const queues = 20
	const most = 3 // in use
	const kept = 2 // by a *sql.DB, for later requests
	onEach(t, func(w *world) {
		var producers []*chanq.Producer[string]
		var consumers []*chanq.Consumer[string]
		for i := range queues {
			q := w.Queue("work_"+string(rune('a'+i)), chanq.Config{})
			producers = append(producers, testdb.Produce(w, q, chanq.ProducerConfig{}))
			consumers = append(consumers, testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 3 * time.Second}))
		}
		looks := func() (n int64) {
			for _, c := range consumers {
				n += c.Stats().Looks
			}
			return n
		}
		idle := func(when string) {
			before := looks()
			if !w.Engine.Bubble { // on a real clock polls take time, and a busier machine has more of them at once
				w.Eventually(when+": they have polled, and at some moment few connections are in use", func() bool {
					open, _ := w.Faults.Conns()
					return looks()-before > 3*queues && w.DB.Stats().InUse <= most && open <= most+kept
				})
				return
			}
			inUse, open := w.inUse(8 * time.Second)
			w.Logf("%s: %d in use, %d open, %d polls", when, inUse, open, looks()-before)
			require.Greater(w, looks()-before, int64(3*queues), "the consumers poll")
			require.LessOrEqual(w, inUse, most, when)
			require.LessOrEqual(w, open, most+kept, when)
		}
		idle("never used")
		if !w.Engine.Bubble && !testdb.IsSoak() {
			return
		}
		var working sync.WaitGroup
		for i := range queues {
			working.Go(func() {
				testdb.SendBy(w, producers[i], make([]chanq.Message[string], 20)...)
				for _, l := range testdb.Take(w, consumers[i], 20) {
					if err := l.Ack(); err != nil {
						w.Errorf("ack: %v", err)
					}
				}
				if err := consumers[i].Flush(w.Soon()); err != nil {
					w.Errorf("flush: %v", err)
				}
			})
		}
		working.Wait()
		w.Eventually("unused connections are closed, without a call", func() bool {
			return w.DB.Stats().InUse <= most
		})
		idle("used before")
		for i := range queues {
			require.NoError(w, producers[i].Close(w.Soon()))
			require.NoError(w, consumers[i].Shutdown(w.Soon()))
		}
	})
}
