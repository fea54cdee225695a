package chanq

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Interleavings and limits that a reading of the code called in question.

func openTestQueue[T any](t *testing.T, cfg Config) *Queue[T] {
	t.Helper()
	db, err := embedded.Open(filepath.Join(t.TempDir(), "q.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, Migrate(t.Context(), db, "orders", cfg))
	q, err := Open[T](t.Context(), db, "orders", cfg)
	require.NoError(t, err)
	return q
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func testConsumer[T any](t *testing.T, q *Queue[T], cfg ConsumerConfig) *Consumer[T] {
	t.Helper()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Shutdown(ctx)
		<-c.finished
	})
	return c
}

func testProducer[T any](t *testing.T, q *Queue[T], cfg ProducerConfig) *Producer[T] {
	t.Helper()
	p, err := q.Producer(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

func TestMessagesThatFitTheBufferOnlyOneByOneAreStored(t *testing.T) {
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{BufferBytes: 10_000})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := range 10 {
				p.C() <- Message[[]byte]{Body: make([]byte, []int{2000, 9000}[i%2])}
			}
		})
	}
	sent := make(chan struct{})
	go func() { senders.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-soon(t).Done():
		require.Fail(t, "the intake waits for room that there never is")
	}
	require.NoError(t, p.Close(soon(t)))
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 40, s.Ready)
}

func TestCloseReturnsThoughTheBufferIsFullOfWhatCannotBeStored(t *testing.T) {
	q := openTestQueue[chan int](t, Config{}) // JSON has no channels
	p := testProducer(t, q, ProducerConfig{BufferBytes: 600})
	sent := 0
	for full := false; !full; {
		select {
		case p.C() <- Message[chan int]{Body: make(chan int)}:
			sent++
		case <-time.After(100 * time.Millisecond):
			full = true
		}
	}
	ctx := soon(t)
	err := p.Close(ctx)
	require.NoError(t, ctx.Err())
	var unsent *UnsentError[chan int]
	require.ErrorAs(t, err, &unsent)
	require.Len(t, unsent.Unsent, sent)
}

func TestWhatTheChannelAcceptedDuringCloseIsStoredOrReturned(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	for range 20 {
		p, err := q.Producer(ProducerConfig{})
		require.NoError(t, err)
		var senders sync.WaitGroup
		var mu sync.Mutex
		accepted := 0
		for range 4 {
			senders.Go(func() {
				for i := range 1000 {
					select {
					case p.C() <- Message[int]{Body: i}:
						mu.Lock()
						accepted++
						mu.Unlock()
					case <-p.Done():
						return
					}
				}
			})
		}
		require.NoError(t, p.Close(soon(t)))
		senders.Wait()
		stored, err := q.Purge(t.Context(), StateReady)
		require.NoError(t, err)
		require.Equal(t, accepted, stored)
	}
}

func TestFlushWorksAfterTheSenderClosedTheChannel(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	p.C() <- Message[int]{Body: 1}
	close(p.C())
	require.NoError(t, p.Flush(soon(t)))
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, s.Ready)
}

func TestAGroupThatIsHalfDoneHasAnUnknownOutcome(t *testing.T) {
	q := openTestQueue[string](t, Config{}).core
	rows := []sqlbatch.Row{{ID: NewID(), Body: []byte("x")}}
	calls := 0
	err := q.enqueue(t.Context(), func(sqlbatch.Statement, func(*sql.Rows) error) error {
		if calls++; calls == 1 {
			return nil // the insert: committed
		}
		return &session.NotRunError{Err: context.Canceled} // the look at what it left out
	}, q.sql, rows, make([]Receipt, 1), true)
	require.Equal(t, 2, calls)
	var half *halfDoneError
	require.ErrorAs(t, err, &half)
	require.Equal(t, sqlbatch.Unknown, q.classify(err))
}

// As where INSERT and look compare keys in two ways.
func TestAKeyThatTheInsertLeavesOutAndTheLookDoesNotFindIsGivenUp(t *testing.T) {
	q := openTestQueue[string](t, Config{}).core
	rows := []sqlbatch.Row{{ID: NewID(), Key: "é", Body: []byte("x")}}
	calls := 0
	began := time.Now()
	err := q.enqueue(t.Context(), func(sqlbatch.Statement, func(*sql.Rows) error) error {
		calls++
		return nil
	}, q.sql, rows, make([]Receipt, 1), true)
	require.ErrorContains(t, err, `dedup key "é"`)
	require.Equal(t, 2*keyTries, calls)
	require.Greater(t, time.Since(began), 500*time.Millisecond, "there are pauses")
	require.Equal(t, sqlbatch.BadRow, q.classify(err), "others of its group are stored")

	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err = q.enqueue(ctx, func(sqlbatch.Statement, func(*sql.Rows) error) error {
		if calls++; calls == 3 {
			cancel()
		}
		return ctx.Err()
	}, q.sql, rows, make([]Receipt, 1), true)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, calls, "the end of the context ends it")
}

func TestAnAckOfUnknownOutcomeIsDoneOnlyWhileTheLeaseRuns(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	for _, test := range []struct {
		name string
		late bool
	}{{"while it runs", false}, {"after it ran out", true}} {
		t.Run(test.name, func(t *testing.T) {
			_, err := p.Send(t.Context(), Message[string]{Body: "x"})
			require.NoError(t, err)
			leases, err := q.TryLease(t.Context(), 1, time.Minute)
			require.NoError(t, err)
			require.Len(t, leases, 1)
			l := leases[0].lease
			_, err = q.Cancel(t.Context(), leases[0].ID) // whoever did it, the row is gone
			require.NoError(t, err)
			l.state.Store(leaseSettling)
			if test.late {
				l.deadline.Store(int64(monotonic()))
			}
			owner := &loneOwner{queue: q.core, timeout: time.Minute, values: t.Context()}
			l.unknown = true
			owner.store(t.Context(), []*lease{l})
			if !test.late {
				require.NoError(t, l.outcome())
				return
			}
			var op *OpError
			require.ErrorAs(t, l.outcome(), &op)
			require.True(t, op.Unknown)
		})
	}
}

func TestTheBufferKeepsWithinItsBytes(t *testing.T) {
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	c := testConsumer(t, q, ConsumerConfig{PrefetchBytes: 300_000})
	for range 16 { // the first claim knows nothing of the size of bodies
		_, err := p.Send(t.Context(), Message[[]byte]{Body: make([]byte, 100_000)})
		require.NoError(t, err)
		require.NoError(t, (<-c.C()).Ack())
	}
	ms := make([]Message[[]byte], 50)
	for i := range ms {
		ms[i].Body = make([]byte, 100_000)
	}
	_, err := p.SendBatch(t.Context(), ms...)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return c.Stats().Buffered == 3 }, 5*time.Second, time.Millisecond)
	require.Never(t, func() bool { return c.Stats().Buffered > 3 }, 300*time.Millisecond, 5*time.Millisecond)
}

func TestSettledLeasesDoNotStayWithTheKeeper(t *testing.T) {
	const n = 8000
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.SendBatch(t.Context(), make([]Message[[]byte], n)...)
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Hour})
	for range n {
		require.NoError(t, (<-c.C()).Ack())
	}
	require.NoError(t, c.Flush(soon(t)))
	c.keeper.mu.Lock()
	defer c.keeper.mu.Unlock()
	kept := 0
	for _, hold := range c.keeper.holds {
		kept += len(hold)
	}
	require.Less(t, kept, n/2)
}

func TestBatchesOfANegativeSizeHaveOneLease(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.Send(t.Context(), Message[string]{})
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{})
	for batch := range c.Batches(-1, time.Second) {
		require.Len(t, batch, 1)
		require.NoError(t, batch[0].Ack())
		break
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestAHandlersOddErrorsStillSettleTheMessage(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		backoff func(int) time.Duration
	}{
		"a delay beyond all bounds": {err: RetryAfter(290*365*24*time.Hour, errors.New("busy"))},
		"an Error that panics":      {err: (*nilError)(nil)},
		"a Backoff that panics":     {err: errors.New("busy"), backoff: func(int) time.Duration { panic("no") }},
		"a Backoff without end":     {err: errors.New("busy"), backoff: func(int) time.Duration { return 1<<63 - 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := openTestQueue[string](t, Config{})
			p := testProducer(t, q, ProducerConfig{})
			_, err := p.Send(t.Context(), Message[string]{})
			require.NoError(t, err)
			c := testConsumer(t, q, ConsumerConfig{Backoff: test.backoff})
			require.NoError(t, c.Handle(1, func(context.Context, *Lease[string]) error {
				c.Stop()
				return test.err
			}))
			require.NoError(t, c.Shutdown(soon(t)))
			require.EqualValues(t, 1, c.Stats().Nacked)
		})
	}
}

func TestALeaseOfASlowClaimIsExtendedBeforeTheNextTick(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.Send(t.Context(), Message[string]{})
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Hour})
	l := <-c.C()
	require.NoError(t, l.Extend(t.Context(), time.Minute)) // as little as a slow claim leaves
	require.Eventually(t, func() bool { return time.Until(l.Deadline()) > 30*time.Minute }, 5*time.Second, time.Millisecond)
	require.NoError(t, l.Ack())
}

func TestADeadMessageWithUnreadableHeadersCanBePeeked(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.Send(t.Context(), Message[string]{Body: "kept", Headers: map[string]string{"a": "b"}})
	require.NoError(t, err)
	_, err = q.core.db.Exec("UPDATE chanq_orders SET headers = x'00'")
	require.NoError(t, err)
	leases, err := q.TryLease(t.Context(), 1, time.Minute)
	require.NoError(t, err)
	require.Empty(t, leases)
	dead, err := q.Peek(t.Context(), StateDead, 1)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, "kept", string(dead[0].Body))
	require.True(t, strings.Contains(dead[0].LastError, "headers"), dead[0].LastError)
}
