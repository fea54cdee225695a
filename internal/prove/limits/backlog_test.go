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
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// backlog is the bound of a consumer's settles, unless Prefetch is large, and
// underWay the most that its settler has taken out of it: two groups.
const (
	backlog  = 4096
	underWay = 2 * 1000
)

// hanging makes a queue whose settles hang, and hands in more of them than
// the backlog holds. acked counts the calls of Ack that returned, and result
// has the first error of one, or nil when all have returned.
func hanging(w *world, cfg chanq.Config) (q *chanq.Queue[string], c *chanq.Consumer[string], total int, acked *atomic.Int64, result chan error) {
	const each = 500
	total = (backlog+underWay)/each*each + 2*each
	q = w.queue("work", cfg)
	p := w.produce(q, chanq.ProducerConfig{})
	for range total / each {
		w.send(p, make([]string, each)...)
	}
	require.NoError(w, p.Close(w.soon()))
	c = w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Hour, Prefetch: 250, StatementTimeout: slowness * 2 * time.Second})
	leases := w.take(c, total)
	st := w.statements("work")
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if acks(op, st) { // each of them: another goes on beside the first
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
	w.eventually("the backlog is full", func() bool { return c.Stats().Settling == backlog })
	return q, c, total, acked, result
}

func acks(op faultdb.Op, q sqlbatch.Queue) bool {
	return runs(op, q.Ack(nil)) || runs(op, q.SkipLocked().Ack(nil))
}

func TestSettlesThatHangPauseClaimsAndRecover(t *testing.T) {
	onEach(t, func(w *world) {
		var told outages
		q, c, total, acked, result := hanging(w, chanq.Config{Hooks: chanq.Hooks{Availability: told.add}})
		st := w.statements("work")
		var claims, tries atomic.Int64
		w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
			switch {
			case runs(op, st.Claim(sqlbatch.ClaimParams{Rows: 1, Suspects: true})):
				claims.Add(1)
			case acks(op, st):
				tries.Add(1)
				return faultdb.Hang()
			}
			return faultdb.Fault{}
		})
		w.eventually("it is told, and tried again", func() bool { return len(told.list()) > 0 && tries.Load() > 0 })
		require.Empty(w, result, "Ack waits for room")
		require.LessOrEqual(w, acked.Load(), int64(backlog+underWay))
		require.Zero(w, claims.Load(), "claims pause")
		require.Equal(w, []string{"consumer down"}, told.list())

		w.faults.Inject(nil)
		require.NoError(w, <-result)
		require.NoError(w, c.Flush(w.soon()))
		require.EqualValues(w, total, c.Stats().Acked)
		require.Equal(w, []string{"consumer down", "consumer up"}, told.list())
		require.NoError(w, c.Shutdown(w.soon()))
		require.Zero(w, w.counted(q))
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
		_, scanned := fmt.Sscanf(err.Error(), "chanq: shutdown work: %d leases not settled, %d settles not confirmed:", &held, &settling)
		require.NoError(w, scanned, err)
		require.GreaterOrEqual(w, settling, backlog)
		require.Equal(w, total, held+settling, "all that was given up is told")
		require.ErrorIs(w, <-result, chanq.ErrClosed, "the Ack that waited for room")
		require.Less(w, acked.Load(), int64(total))
		w.faults.Inject(nil)
		require.NoError(w, c.Shutdown(w.soon()), "its goroutines end")
		require.Equal(w, total, w.counted(q).Leased, "nothing is lost: the leases run out")
	})
}

func TestAReaderThatStopsKeepsNoMoreThanItsPrefetch(t *testing.T) {
	onEach(t, func(w *world) {
		const prefetch, total = 50, 2000
		q := w.queue("work", chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{})
		stuck := w.consume(q, chanq.ConsumerConfig{Prefetch: prefetch, LeaseFor: time.Minute})
		for range total / 500 {
			w.send(p, make([]string, 500)...)
		}
		w.eventually("its buffer is filled", func() bool { return stuck.Stats().Buffered > 0 })
		busy := w.consume(q, chanq.ConsumerConfig{LeaseFor: time.Minute})
		for _, l := range w.take(busy, total-prefetch) {
			require.NoError(w, l.Ack())
		}
		require.LessOrEqual(w, stuck.Stats().Held, prefetch)
		stuck.Stop() // gives back what nobody read
		rest := stuck.Stats().Held
		w.eventually("the others get it", func() bool {
			for done := false; !done; {
				select {
				case l := <-busy.C():
					require.Equal(w, 1, l.Attempt)
					require.NoError(w, l.Ack())
				default:
					done = true
				}
			}
			return w.counted(q) == chanq.Stats{}
		})
		require.LessOrEqual(w, rest, prefetch)
		require.NoError(w, stuck.Shutdown(w.soon()))
		require.NoError(w, busy.Shutdown(w.soon()))
		require.EqualValues(w, total, busy.Stats().Acked)
		require.NoError(w, p.Close(w.soon()))
	})
}

func TestAHugeBodyHarmsNothingElse(t *testing.T) {
	onEach(t, func(w *world) {
		q := w.queue("work", chanq.Config{})
		p := w.produce(q, chanq.ProducerConfig{})
		huge := strings.Repeat("x", 64<<20)
		before := w.faults.Ops()
		_, err := p.Send(w.soon(), chanq.Message[string]{Body: huge})
		require.ErrorIs(w, err, chanq.ErrTooLarge)
		require.Less(w, len(err.Error()), 500, "the error does not carry the body")
		require.Equal(w, before, w.faults.Ops(), "nothing was sent to the database")

		_, err = p.SendBatch(w.soon(), []chanq.Message[string]{{Body: "a"}, {Body: huge}, {Body: "b"}}...)
		var batch *chanq.BatchError
		require.ErrorAs(w, err, &batch)
		require.NoError(w, errors.Join(batch.Errs[0], batch.Errs[2]))
		require.ErrorIs(w, batch.Errs[1], chanq.ErrTooLarge)

		p.C() <- chanq.Message[string]{Body: huge}
		for range 100 {
			p.C() <- chanq.Message[string]{Body: "c"}
		}
		w.send(p, "d")
		require.ErrorIs(w, p.Flush(w.soon()), chanq.ErrTooLarge)
		err = p.Close(w.soon())
		var unsent *chanq.UnsentError[string]
		require.ErrorAs(w, err, &unsent)
		require.Len(w, unsent.Unsent, 1)
		require.Len(w, unsent.Unsent[0].Message.Body, 64<<20)
		require.Less(w, len(err.Error()), 500)
		require.Equal(w, chanq.Stats{Ready: 103}, w.counted(q))
	})
}
