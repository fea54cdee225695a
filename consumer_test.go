package chanq

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheBufferKeepsWithinItsBytes(t *testing.T) {
	q := openTestQueue[[]byte](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	c := testConsumer(t, q, ConsumerConfig{PrefetchBytes: 300_000})
	for range 16 { // the first claim does not know the size of bodies
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
	require.Eventually(t, func() bool { return c.Stats().Buffered == 3 }, time.Minute, time.Millisecond)
	require.Never(t, func() bool { return c.Stats().Buffered > 3 }, 300*time.Millisecond, 5*time.Millisecond)
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestAHandlersOddErrorsStillSettleTheMessage(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		backoff func(*Delivery, error) time.Duration
	}{
		"a delay beyond all bounds": {err: RetryAfter(290*365*24*time.Hour, errors.New("busy"))},
		"an Error that panics":      {err: (*nilError)(nil)},
		"a Backoff that panics":     {err: errors.New("busy"), backoff: func(*Delivery, error) time.Duration { panic("no") }},
		"a Backoff without end":     {err: errors.New("busy"), backoff: func(*Delivery, error) time.Duration { return 1<<63 - 1 }},
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
	require.NoError(t, l.Extend(t.Context(), time.Minute)) // the time that a slow claim leaves
	require.Eventually(t, func() bool { return time.Until(l.Deadline()) > 30*time.Minute }, time.Minute, time.Millisecond)
	require.NoError(t, l.Ack())
}

func TestAckAllReturnsTheSameForALeaseThatIsGivenTwice(t *testing.T) {
	q := openTestQueue[int](t, Config{})
	_, err := testProducer(t, q, ProducerConfig{}).Send(t.Context(), Message[int]{})
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{})
	l := <-c.C()
	c.Stop()
	require.NoError(t, l.Release())
	var batch *BatchError
	require.ErrorAs(t, Ack(soon(t), l, l), &batch)
	require.ErrorIs(t, batch.Errs[0], ErrSettled)
	require.ErrorIs(t, batch.Errs[1], ErrSettled)
}
