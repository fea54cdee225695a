package peer

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	driver "modernc.org/sqlite"

	"github.com/chanq/chanq/bench/internal/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// channelQueue is a queue in memory. Its deliver can misbehave on request.
type channelQueue struct {
	stored     chan Message
	asked      int64
	onDeliver  func(Message, func(Message))
	onSend     func(Message) error
	open       atomic.Int64 // senders and receivers that are not closed
	closed     chan struct{}
	received   sync.WaitGroup
	settledAll chan struct{}
}

func newChannelQueue() *channelQueue {
	return &channelQueue{stored: make(chan Message, 10_000), onDeliver: func(m Message, deliver func(Message)) { deliver(m) }}
}

func (q *channelQueue) Setup(context.Context) error { q.asked += 100; return nil }

func (q *channelQueue) Sender(context.Context) (Sender, error) {
	q.open.Add(1)
	return (*channelSender)(q), nil
}

func (q *channelQueue) Receiver(_ context.Context, n int, deliver func(Message)) (Receiver, error) {
	q.open.Add(1)
	q.settledAll, q.closed = make(chan struct{}), make(chan struct{})
	q.received.Go(func() {
		for i := 0; i < n || n == 0; i++ {
			select {
			case m := <-q.stored:
				q.onDeliver(m, deliver)
			case <-q.closed:
				return
			}
		}
		close(q.settledAll)
	})
	return (*channelReceiver)(q), nil
}

func (q *channelQueue) Left(context.Context) (Left, error) {
	return Left{Rows: int64(len(q.stored))}, nil
}
func (q *channelQueue) Statements() int64 { return q.asked }
func (q *channelQueue) Close() error      { return nil }

type channelSender channelQueue

func (s *channelSender) SendAll(ctx context.Context, ms []Message) error {
	for _, m := range ms {
		s.asked++
		s.stored <- m
	}
	return nil
}

func (s *channelSender) Send(_ context.Context, m Message) error {
	if s.onSend != nil {
		if err := s.onSend(m); err != nil {
			return err
		}
	}
	s.stored <- m
	return nil
}

func (s *channelSender) Close(context.Context) error { s.open.Add(-1); return nil }

type channelReceiver channelQueue

func (r *channelReceiver) Wait(ctx context.Context) error {
	select {
	case <-r.settledAll:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *channelReceiver) Close(context.Context) error {
	r.open.Add(-1)
	close(r.closed)
	r.received.Wait()
	return nil
}

func TestMessagesAreJSONOfTheGivenSizeAndReproducible(t *testing.T) {
	for _, size := range []int{32, 200} {
		ms, err := messages(1001, size)
		require.NoError(t, err)
		for i, m := range ms {
			text, err := json.Marshal(m)
			require.NoError(t, err)
			assert.Len(t, text, size)
			assert.EqualValues(t, i, m.N)
		}
		again, err := messages(1001, size)
		require.NoError(t, err)
		assert.Equal(t, ms, again)
		assert.NotEqual(t, ms[0].Body, ms[1].Body)
	}
	_, err := messages(1, 10)
	assert.ErrorContains(t, err, "too small")
}

func TestAPhaseMeasuresItsOwnStatementsAndClosesWhatItOpened(t *testing.T) {
	q := newChannelQueue()
	ctx := context.Background()
	do := func(phase string) Outcome {
		o, err := run(ctx, q, Job{Phase: phase, N: 100, Body: 64, Rate: 10_000, Warm: 5})
		require.NoError(t, err, phase)
		assert.Zero(t, q.open.Load(), "%s left a side open", phase)
		return o
	}
	do(Setup)
	o := do(Enqueue)
	assert.EqualValues(t, 100, o.Statements)
	assert.Positive(t, o.Seconds)
	assert.Len(t, q.stored, 100)
	o = do(Drain)
	assert.Zero(t, o.Statements)
	assert.Positive(t, o.FirstDelivery)
	assert.LessOrEqual(t, o.FirstDelivery, o.Seconds)
	assert.Empty(t, q.stored)
	assert.EqualValues(t, 100, do(Pipeline).Statements)
	o = do(Latency)
	assert.LessOrEqual(t, o.P50, o.P99)
	assert.LessOrEqual(t, o.P999, o.Max)
	_, err := run(ctx, q, Job{Phase: "rest", N: 1, Body: 64})
	assert.ErrorContains(t, err, `unknown phase "rest"`)
}

func TestASystemThatLosesOrInventsMessagesIsDetected(t *testing.T) {
	for name, c := range map[string]struct {
		misbehave func(Message, func(Message))
		problem   string
	}{
		"settled, never delivered": {func(m Message, deliver func(Message)) {
			if m.N != 7 {
				deliver(m)
			}
		}, "1 of 10 messages were never delivered"},
		"one in place of another": {func(m Message, deliver func(Message)) {
			m.N = max(m.N, 3)
			deliver(m)
		}, "3 of 10 messages were never delivered"},
		"from elsewhere": {func(m Message, deliver func(Message)) {
			deliver(m)
			deliver(Message{N: m.N - 1})
		}, "1 deliveries of messages that were never sent"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newChannelQueue()
			q.onDeliver = c.misbehave
			_, err := run(context.Background(), q, Job{Phase: Pipeline, N: 10, Body: 64})
			assert.ErrorContains(t, err, c.problem)
			assert.Zero(t, q.open.Load())
		})
	}
}

func TestARedeliveryIsCountedAndNoError(t *testing.T) {
	q := newChannelQueue()
	q.onDeliver = func(m Message, deliver func(Message)) {
		deliver(m)
		if m.N < 3 {
			deliver(m)
		}
	}
	o, err := run(context.Background(), q, Job{Phase: Pipeline, N: 10, Body: 64})
	require.NoError(t, err)
	assert.EqualValues(t, 3, o.Redelivered)
}

// A stall of one second must count for the hundred messages that were due in it, not for one.
func TestLatencyRunsFromWhenAMessageWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onDeliver = func(m Message, deliver func(Message)) {
			if m.N == 100 {
				time.Sleep(time.Second)
			}
			deliver(m)
		}
		o, err := run(t.Context(), q, Job{Phase: Latency, N: 400, Body: 64, Rate: 100, Warm: 100})
		require.NoError(t, err)
		assert.EqualValues(t, time.Second.Microseconds(), o.Max)
		assert.EqualValues(t, 0, o.P50, "two thirds were not delayed")
		assert.EqualValues(t, 970_000, o.P99, "297th of 300: the fourth that was delayed most")
		assert.False(t, o.Saturated)
	})
}

func TestTheWarmUpOfALatencyRunIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onDeliver = func(m Message, deliver func(Message)) {
			if m.N == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			deliver(m)
		}
		o, err := run(t.Context(), q, Job{Phase: Latency, N: 100, Body: 64, Rate: 100, Warm: 10})
		require.NoError(t, err)
		assert.Zero(t, o.Max)
	})
}

func TestASystemThatCannotKeepTheRateIsSaturated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onSend = func(Message) error { time.Sleep(5 * time.Second); return nil } // 256 at once: 51/s
		o, err := run(t.Context(), q, Job{Phase: Latency, N: 1000, Body: 64, Rate: 100, Warm: 10})
		require.NoError(t, err)
		assert.True(t, o.Saturated)
		assert.Greater(t, o.P99, float64((5 * time.Second).Microseconds()), "waiting for a slot is part of the time")
	})
}

func TestAFailedSendFailsTheLatencyPhase(t *testing.T) {
	q := newChannelQueue()
	q.onSend = func(m Message) error {
		if m.N == 3 {
			return errors.New("refused")
		}
		return nil
	}
	_, err := run(context.Background(), q, Job{Phase: Latency, N: 10, Body: 64, Rate: 1000})
	assert.ErrorContains(t, err, "refused")
	assert.Zero(t, q.open.Load(), "the receiver is closed, which waits until it has ended")
}

func TestSQLiteWithoutDurableWritesIsRefused(t *testing.T) {
	var counter measure.Counter
	db := sql.OpenDB(counter.DSN(&driver.Driver{}, "file:"+t.TempDir()+"/x.db?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"))
	defer db.Close()
	assert.ErrorContains(t, CheckSQLite(t.Context(), db), "synchronous=1")
}

func TestRemainingMessagesAreCounted(t *testing.T) {
	var counter measure.Counter
	db := sql.OpenDB(counter.DSN(&driver.Driver{}, SQLiteDSN(t.TempDir())))
	defer db.Close()
	require.NoError(t, CheckSQLite(t.Context(), db))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE t AS SELECT 1 UNION ALL SELECT 2")
	require.NoError(t, err)
	left, err := LeftSQLite(t.Context(), db, "t", "t")
	require.NoError(t, err)
	assert.EqualValues(t, 4, left.Rows)
	assert.Positive(t, left.Bytes)
}
