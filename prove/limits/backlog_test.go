package limits_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// backlog is the bound of a consumer's settles, unless Prefetch is large. underWay is the most that
// its settler has taken out of it: two batches.
const (
	backlog  = 4096
	underWay = 2 * 1000
)

// hanging creates a queue whose settles hang, and settles more messages than the backlog holds.
// acked counts the returned calls of Ack. result receives the first error, or nil when all calls
// have returned.
func hanging(w *world, cfg chanq.Config) (q *chanq.Queue[string], c *chanq.Consumer[string], total int, acked *atomic.Int64, result chan error) {
	const each = 500
	total = (backlog+underWay)/each*each + 2*each
	cfg.StatementTimeout = testdb.Slowness * 2 * time.Second
	q = w.Queue("work", cfg)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	for range total / each {
		testdb.SendBy(w, p, make([]chanq.Message[string], each)...)
	}
	require.NoError(w, p.Close(w.Soon()))
	c = testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour, Prefetch: 250})
	leases := testdb.Take(w, c, total)
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, st) { // all of them: several run at the same time
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	acked, result = new(atomic.Int64), make(chan error, 1)
	go func() {
		for _, l := range leases {
			if err := l.Ack(); err != nil {
				result <- err
				return
			}
			acked.Add(1)
		}
		result <- nil
	}()
	w.Eventually("the backlog is full", func() bool { return c.Stats().Settling == backlog })
	return q, c, total, acked, result
}

func acks(op faultdb.Op, q sqlbatch.Queue) bool {
	return testdb.Runs(op, q.Ack(nil)) || testdb.Runs(op, q.SkipLocked().Ack(nil))
}

func TestSettlesThatHangPauseClaimsAndRecover(t *testing.T) {
	onEach(t, func(w *world) {
		var reported outages
		q, c, total, acked, result := hanging(w, chanq.Config{Hooks: chanq.Hooks{Availability: reported.add}})
		st := w.Statements("work")
		var claims, tries atomic.Int64
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			switch {
			case testdb.Runs(op, st.Claim(sqlbatch.ClaimParams{Rows: 1, Inline: sqlbatch.MaxBody})):
				claims.Add(1)
			case acks(op, st):
				tries.Add(1)
				return faultdb.Hang()
			}
			return faultdb.Fault{}
		})
		again := func() {
			tried := tries.Load()
			w.Eventually("the ack is repeated", func() bool { return tries.Load() > tried })
		}
		w.Eventually("the outage is reported", func() bool { return len(reported.list()) > 0 })
		again() // a claim that was running has ended
		claims.Store(0)
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		testdb.SendBy(w, p, chanq.Message[string]{}) // the buffer has room for this message
		again()
		again()
		require.Empty(w, result, "Ack waits for room")
		require.LessOrEqual(w, acked.Load(), int64(backlog+underWay))
		require.Zero(w, claims.Load(), "claims pause")
		require.Equal(w, []string{"consumer down"}, reported.list())

		w.Faults.Inject(nil)
		require.NoError(w, <-result)
		for _, l := range testdb.Take(w, c, 1) {
			require.NoError(w, l.Ack())
		}
		require.NoError(w, c.Flush(w.Soon()))
		require.EqualValues(w, total+1, c.Stats().Acked)
		require.NoError(w, p.Close(w.Soon()))
		require.Equal(w, []string{"consumer down", "consumer up"}, reported.list())
		require.NoError(w, c.Shutdown(w.Soon()))
		require.Zero(w, testdb.Counted(w, q))
	})
}

func TestSettlesThatHangDoNotKeepShutdownFromReturning(t *testing.T) {
	onEach(t, func(w *world) {
		q, c, total, acked, result := hanging(w, chanq.Config{})
		over, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer end()
		err := c.Shutdown(over)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		var held, settling int
		_, scanned := fmt.Sscanf(err.Error(), "chanq: shutdown work: leases not settled: %d, settles not confirmed: %d,", &held, &settling)
		require.NoError(w, scanned, err)
		require.GreaterOrEqual(w, settling, backlog)
		require.Equal(w, total, held+settling, "every abandoned call is reported")
		require.ErrorIs(w, <-result, chanq.ErrClosed, "the Ack that waited for room")
		require.Less(w, acked.Load(), int64(total))
		w.Faults.Inject(nil)
		require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end")
		require.Equal(w, total, testdb.Counted(w, q).Leased, "nothing is lost: the leases expire")
	})
}

func TestAReaderThatStopsHoldsAtMostItsPrefetch(t *testing.T) {
	onEach(t, func(w *world) {
		const prefetch, total = 50, 2000
		q := w.Queue("work", chanq.Config{})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		stuck := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: prefetch, LeaseFor: time.Minute})
		for range total / 500 {
			testdb.SendBy(w, p, make([]chanq.Message[string], 500)...)
		}
		w.Eventually("its buffer is filled", func() bool { return stuck.Stats().Buffered > 0 })
		busy := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute})
		for _, l := range testdb.Take(w, busy, total-prefetch) {
			require.NoError(w, l.Ack())
		}
		require.LessOrEqual(w, stuck.Stats().Held, prefetch)
		stuck.Stop() // releases the unread messages
		rest := stuck.Stats().Held
		w.Eventually("the others get the released messages", func() bool {
			for done := false; !done; {
				select {
				case l := <-busy.C():
					require.Equal(w, 1, l.Attempt)
					require.NoError(w, l.Ack())
				default:
					done = true
				}
			}
			return testdb.Counted(w, q) == chanqadmin.Stats{}
		})
		require.LessOrEqual(w, rest, prefetch)
		require.NoError(w, stuck.Shutdown(w.Soon()))
		require.NoError(w, busy.Shutdown(w.Soon()))
		require.EqualValues(w, total, busy.Stats().Acked)
		require.NoError(w, p.Close(w.Soon()))
	})
}

func TestAHugeBodyAffectsNoOtherMessage(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.Queue("work", chanq.Config{})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		huge := strings.Repeat("x", 64<<20)
		st := w.Statements("work")
		var sends atomic.Int64 // the producer connects meanwhile
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.RunsStore(op, 1, st.Enqueue) || testdb.RunsStore(op, 1, st.EnqueueNew) {
				sends.Add(1)
			}
			return faultdb.Fault{}
		})
		_, err := p.Send(w.Soon(), chanq.Message[string]{Body: huge})
		require.ErrorIs(w, err, chanq.ErrTooLarge)
		require.Less(w, len(err.Error()), 500, "the error does not carry the body")
		require.Zero(w, sends.Load(), "nothing was sent to the database")
		w.Faults.Inject(nil)

		_, err = p.SendBatch(w.Soon(), []chanq.Message[string]{{Body: "a"}, {Body: huge}, {Body: "b"}}...)
		var batch *chanq.BatchError
		require.ErrorAs(w, err, &batch)
		require.NoError(w, errors.Join(batch.Errs[0], batch.Errs[2]))
		require.ErrorIs(w, batch.Errs[1], chanq.ErrTooLarge)

		p.C() <- chanq.Message[string]{Body: huge}
		for range 100 {
			p.C() <- chanq.Message[string]{Body: "c"}
		}
		testdb.SendBy(w, p, testdb.Texts("d")...)
		require.ErrorIs(w, p.Flush(w.Soon()), chanq.ErrTooLarge)
		err = p.Close(w.Soon())
		var unsent *chanq.UnsentError[string]
		require.ErrorAs(w, err, &unsent)
		require.Len(w, unsent.Unsent, 1)
		require.Len(w, unsent.Unsent[0].Message.Body, 64<<20)
		require.Less(w, len(err.Error()), 500)
		require.Equal(w, chanqadmin.Stats{Ready: 103}, testdb.Counted(w, q))
	})
}
