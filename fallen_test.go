package chanq

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// falls panics where statements are made: so does any goroutine that makes them, as by a fault
// of chanq's.
type falls struct {
	sqlbatch.Queue
	at    string
	armed *atomic.Bool
}

func (f falls) fall(at string) {
	if f.at == at && f.armed.Load() {
		panic("a fault")
	}
}

func (f falls) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	f.fall("claim")
	return f.Queue.Claim(p)
}

func (f falls) ClaimSlots(c sqlbatch.SlotClaim) sqlbatch.Statement {
	f.fall("claim")
	return f.Queue.ClaimSlots(c)
}

func (f falls) Survey() sqlbatch.Statement {
	f.fall("survey")
	return f.Queue.Survey()
}

func (f falls) Slots(parts []sqlbatch.SlotPart) sqlbatch.Statement {
	f.fall("survey")
	return f.Queue.Slots(parts)
}

func (f falls) Extend(items []sqlbatch.Item, d time.Duration) sqlbatch.Statement {
	f.fall("extend")
	return f.Queue.Extend(items, d)
}

func (f falls) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	f.fall("ack")
	return f.Queue.Ack(items)
}

func (f falls) Join(m sqlbatch.Member) sqlbatch.Statement {
	f.fall("join")
	return f.Queue.Join(m)
}

func (f falls) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement {
	f.fall("enqueue")
	return f.Queue.Enqueue(rows)
}

func (f falls) InOwnTx() sqlbatch.Queue { // as a pipe begins
	f.fall("pipe")
	return f.Queue.InOwnTx()
}

func (f falls) Sample(s sqlbatch.Sample) sqlbatch.Statement {
	f.fall("sample")
	return f.Queue.Sample(s)
}

func TestAPanicOfAnyGoroutineEndsTheConsumerWithAnErrorAndNothingHangs(t *testing.T) {
	for _, kind := range []Kind{KindPlain, KindOrdered} {
		for _, at := range []string{"claim", "survey", "extend", "ack", "join"} {
			t.Run(kind.String()+"/"+at, func(t *testing.T) {
				t.Parallel()
				q := openTestQueue[string](t, Config{Kind: kind})
				_, err := testProducer(t, q, ProducerConfig{}).SendBatch(t.Context(), make([]Message[string], 3)...)
				require.NoError(t, err)
				armed := &atomic.Bool{}
				q.core.sql = falls{q.core.sql, at, armed}
				armed.Store(at != "ack" && at != "extend")
				c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Second})
				if !armed.Load() {
					held := <-c.C()
					armed.Store(true)
					if at == "ack" {
						require.NoError(t, held.Ack())
						var op *OpError
						require.ErrorAs(t, held.Wait(soon(t)), &op)
						require.True(t, op.Unknown)
					}
				}
				requireFallen(t, c)
			})
		}
	}
}

// requireFallen waits for the end of a consumer after a panic. What a reader does not settle keeps
// it for LeaseFor.
func requireFallen(t *testing.T, c *Consumer[string]) {
	t.Helper()
	select {
	case <-c.Done():
	case <-soon(t).Done():
		require.Fail(t, "the consumer goes on")
	}
	require.ErrorContains(t, c.Err(), "a fault")
	for l := range c.C() {
		require.NoError(t, l.Release())
	}
	require.NoError(t, c.Shutdown(soon(t)))
	_ = c.Stats()
}

func TestAPanicOfAStorerIsToldToSendersAndTheProducerGoesOn(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	armed := &atomic.Bool{}
	q.core.sql = falls{q.core.sql, "enqueue", armed}
	p := testProducer(t, q, ProducerConfig{})
	armed.Store(true)
	receipt, err := p.Send(soon(t), Message[string]{Body: "a"})
	var op *OpError
	require.ErrorAs(t, err, &op)
	require.ErrorContains(t, op, "a fault")
	require.True(t, op.Unknown)
	p.C() <- Message[string]{Body: "b"}
	require.ErrorContains(t, p.Flush(soon(t)), "a fault")
	armed.Store(false)
	_, err = p.Send(soon(t), Message[string]{Body: "a", ID: receipt.ID})
	require.NoError(t, err)
	var unsent *UnsentError[string]
	require.ErrorAs(t, p.Close(soon(t)), &unsent)
	require.Len(t, unsent.Unsent, 1)
	require.Equal(t, "b", unsent.Unsent[0].Message.Body)
	s, err := q.Stats(soon(t))
	require.NoError(t, err)
	require.Equal(t, 1, s.Ready)
}

func TestAPanicOfAPipesStorerEndsTheConsumerAndTheInputsStay(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	armed := &atomic.Bool{}
	q.core.sql = falls{q.core.sql, "pipe", armed}
	p := testProducer(t, q, ProducerConfig{})
	_, err := p.SendBatch(soon(t), make([]Message[string], 3)...)
	require.NoError(t, err)
	armed.Store(true)
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Second})
	ended := make(chan error, 1)
	go func() {
		ended <- Pipe(c, p, 2, func(context.Context, *Lease[string]) ([]Message[string], error) { return nil, nil })
	}()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "a fault")
	case <-soon(t).Done():
		require.Fail(t, "the pipe goes on")
	}
	require.NoError(t, c.Shutdown(soon(t)))
	list, err := q.core.peek(soon(t), StateReady, 10, nil)
	require.NoError(t, err)
	leased, err := q.core.peek(soon(t), StateLeased, 10, nil)
	require.NoError(t, err)
	require.Len(t, append(list, leased...), 3)
}

func TestAPanicInTheHistoryIsToldAndStopsNothingElse(t *testing.T) {
	told := make(chan HousekeepingEvent, 1)
	q := openTestQueue[string](t, Config{Hooks: Hooks{Housekeeping: func(e HousekeepingEvent) { told <- e }}})
	q.core.sampleEvery = time.Millisecond
	armed := &atomic.Bool{}
	armed.Store(true)
	q.core.sql = falls{q.core.sql, "sample", armed}
	p := testProducer(t, q, ProducerConfig{})
	require.ErrorContains(t, (<-told).Err, "a fault")
	_, err := p.Send(soon(t), Message[string]{Body: "a"})
	require.NoError(t, err)
	require.NoError(t, p.Close(soon(t)))
}

func TestAPanicInTheLinesHandsNothingOutAnyMore(t *testing.T) {
	q := openTestQueue[string](t, Config{Kind: KindOrdered, Slots: 1})
	ms := make([]Message[string], 4)
	for i := range ms {
		ms[i].Key = "a"
	}
	_, err := testProducer(t, q, ProducerConfig{}).SendBatch(t.Context(), ms...)
	require.NoError(t, err)
	c := testConsumer(t, q, ConsumerConfig{LeaseFor: time.Second})
	first := <-c.C()
	require.Eventually(t, func() bool { return c.Stats().Waiting == 3 }, time.Minute, time.Millisecond)
	c.shards[0].order.change(func(*lines) { panic("a fault") })
	require.NoError(t, first.Ack())
	require.NoError(t, first.Wait(soon(t)))
	next, open := <-c.C()
	require.False(t, open, "%v", next)
	requireFallen(t, c)
}
