package guarantees

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

var leasing = []test{
	{"G02_AProcessHandlesAMessageOnceAtATimeAlsoAfterALostLease", handledOnceAtATime},
	{"AHandlerThatHangsDelaysItsMessageByASecond", hangsBesideItself},
	{"ExtendMovesTheExpiryOfTheLease", extendMoves},
	{"MaxExtendEndsTheLeaseOfAStuckHandler", maxExtend},
	{"MaxExtendCountsFromWhenAReaderTakesTheMessage", maxExtendOfReaders},
	{"NoLeaseInTheBufferExpiresDuringALongJob", bufferedDuringLongJob},
	{"AReleaseWakesAnotherConsumer", givenBackWakes},
	{"G03_AHolderHasNoLeaseOnAMessageThatIsSentAgainWithTheSameID", formerLife},
	{"G03_AFenceIsNeverGivenTwiceToOneID", fencesOfOneID},
	{"G03_AHolderWhoseClaimTheDatabaseForgotHasNoLease", forgottenClaim},
}

func extendMoves(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	before := testdb.Get(w, q, id)
	require.NoError(w, l.Extend(w.Soon(), time.Hour))
	e := testdb.Get(w, q, id)
	require.Equal(w, before.Fence, e.Fence)
	require.WithinRange(w, e.LeaseUntil, before.LeaseUntil.Add(58*time.Minute), before.LeaseUntil.Add(60*time.Minute))
	require.WithinRange(w, l.Deadline(), e.LeaseUntil.Add(-time.Minute), e.LeaseUntil)

	require.Error(w, l.Extend(w.Soon(), 0))
	require.Error(w, l.Extend(w.Soon(), -time.Second))
	deadline := l.Deadline()
	require.NoError(w, l.Extend(w.Soon(), 200*time.Millisecond))
	require.Equal(w, e, testdb.Get(w, q, id), "Extend never shortens the lease")
	require.WithinDuration(w, deadline, l.Deadline(), time.Second)
}

func maxExtend(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 2 * steadyLease, MaxExtend: steadyLease})
	began := time.Now()
	stuck := testdb.Take(w, c, 1)[0]
	w.ended(stuck)
	require.Greater(w, time.Since(began), 2*steadyLease*11/10, "the lease was extended before it ended")
	again := testdb.Take(w, c, 1)[0]
	require.Equal(w, 2, again.Attempt)
	require.NoError(w, again.Ack())
	require.NoError(w, again.Wait(w.Soon()))
	require.NoError(w, stuck.Ack(), "the consumer has not detected the loss yet")
	require.ErrorIs(w, stuck.Wait(w.Soon()), chanq.ErrLeaseLost)
}

// maxExtendOfReaders keeps messages in the buffer of one reader for longer than MaxExtend.
func maxExtendOfReaders(w *world) {
	read := func(c *chanq.Consumer[string], fn func(*chanq.Lease[string]) error) error {
		for l := range c.C() {
			_ = l.Settle(fn(l))
		}
		return nil
	}
	batches := func(c *chanq.Consumer[string], fn func(*chanq.Lease[string]) error) error {
		return c.HandleBatches(1, 1, 0, func(_ context.Context, ls []*chanq.Lease[string]) error { return fn(ls[0]) })
	}
	single := func(c *chanq.Consumer[string], fn func(*chanq.Lease[string]) error) error {
		return c.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error { return fn(l) })
	}
	piped := func(c *chanq.Consumer[string], fn func(*chanq.Lease[string]) error) error {
		return chanq.Pipe(c, w.Queue("output", chanq.Config{}), 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			return nil, fn(l)
		})
	}
	const n = 6
	for name, way := range map[string]func(*chanq.Consumer[string], func(*chanq.Lease[string]) error) error{
		"channel": read, "batches": batches, "handle": single, "ordered": single, "pipe": piped,
	} {
		var lost losses
		cfg := chanq.Config{Hooks: lost.hooks()}
		if name == "ordered" {
			cfg.Kind, cfg.Slots = chanq.KindOrdered, 4
		}
		q := w.Queue(name, cfg)
		w.sendApart(q, numbers(n)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, MaxExtend: 2 * steadyLease})
		handled, ended := make(chan *chanq.Lease[string], 2*n), make(chan error, 1)
		go func() {
			ended <- way(c, func(l *chanq.Lease[string]) error {
				time.Sleep(steadyLease) // in total longer than MaxExtend
				handled <- l
				return nil
			})
		}()
		for range n {
			require.Equal(w, 1, testdb.Receive(w, handled, name).Attempt, name)
		}
		w.Eventually(name+": all are acked", func() bool { return testdb.Empty(w, q) })
		c.Stop()
		require.NoError(w, <-ended)
		require.NoError(w, c.Shutdown(w.Soon()))
		require.Empty(w, lost.but(), name)
	}
}

// bufferedDuringLongJob has the only reader hold one lease for many times MaxExtend, by Extend.
func bufferedDuringLongJob(w *world) {
	w.Within(time.Hour)
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks()})
	testdb.Send(w, q, testdb.Texts("long", "behind")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, MaxExtend: steadyLease})
	long := testdb.Take(w, c, 1)[0]
	require.NoError(w, long.Extend(w.Soon(), time.Hour))
	time.Sleep(8 * steadyLease)
	require.NoError(w, long.Ack())
	behind := testdb.Take(w, c, 1)[0]
	require.Equal(w, 1, behind.Attempt)
	require.NoError(w, behind.Ack())
	require.NoError(w, behind.Wait(w.Soon()))
	require.Empty(w, lost.but())
}

// paused starts a consumer and waits until its pauses are long: minutes in a bubble.
func paused(w *world, q *chanq.Queue[string]) *chanq.Consumer[string] {
	w.Helper()
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: time.Hour})
	w.longPaused(c)
	return c
}

func (w *world) longPaused(c *chanq.Consumer[string]) {
	w.Helper()
	looks := c.Stats().Looks
	w.Eventually("the consumer pauses", func() bool { return c.Stats().Looks > looks })
	if w.Engine.Bubble {
		w.Within(time.Hour)
		w.pass(5 * time.Minute)
	}
}

// woken receives a message for which the consumer was notified.
func (w *world) woken(c *chanq.Consumer[string]) *chanq.Lease[string] {
	w.Helper()
	began := time.Now()
	l := testdb.Take(w, c, 1)[0]
	if w.Engine.Bubble {
		require.Less(w, time.Since(began), time.Second, "it was found by a poll")
	}
	return l
}

func givenBackWakes(w *world) {
	q := w.Queue("work", alone)
	testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
	first := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	held := testdb.Take(w, first, 2)
	w.Eventually("the third message is in the buffer", func() bool { return first.Stats().Buffered == 1 })
	other := paused(w, q)
	first.Stop()
	l := w.woken(other)
	require.Equal(w, "c", l.Body, "by Stop")
	require.NoError(w, l.Ack())
	for i, delay := range []time.Duration{0, slowness * 100 * time.Millisecond} {
		w.longPaused(other)
		require.NoError(w, held[i].Nack(chanq.RetryAfter(delay, nil)))
		l = w.woken(other)
		require.Equal(w, held[i].ID, l.ID, "by Nack(%v)", delay)
		require.NoError(w, l.Ack())
	}
}

// handling observes the calls of handlers for one message: the first lasts longer than its lease.
type handling struct {
	lasts         time.Duration // of the first call, after its context has ended
	running, most atomic.Int32
	calls         chan struct{}
}

func (h *handling) call(ctx context.Context) {
	running := h.running.Add(1)
	defer h.running.Add(-1)
	h.most.Store(max(h.most.Load(), running))
	h.calls <- struct{}{}
	if len(h.calls) == 1 {
		<-ctx.Done()
		time.Sleep(h.lasts)
	}
}

// handledOnceAtATime: a jump of the database's clock ends a lease that this process still counts on, and MaxExtend one that both have ended.
func handledOnceAtATime(w *world) {
	ways := map[string]func(h *handling, c *chanq.Consumer[string], to *chanq.Queue[string]) error{
		"Handle": func(h *handling, c *chanq.Consumer[string], _ *chanq.Queue[string]) error {
			return c.Handle(2, func(ctx context.Context, _ *chanq.Lease[string]) error {
				h.call(ctx)
				return nil
			})
		},
		"HandleBatches": func(h *handling, c *chanq.Consumer[string], _ *chanq.Queue[string]) error {
			return c.HandleBatches(2, 10, 0, func(ctx context.Context, _ []*chanq.Lease[string]) error {
				h.call(ctx)
				return nil
			})
		},
		"Pipe": func(h *handling, c *chanq.Consumer[string], to *chanq.Queue[string]) error {
			return chanq.Pipe(c, to, 2, func(ctx context.Context, _ *chanq.Lease[string]) ([]chanq.Message[string], error) {
				h.call(ctx)
				return nil, nil
			})
		},
	}
	to := w.Queue("output", chanq.Config{})
	w.onKinds(func(q *chanq.Queue[string]) {
		for name, handle := range ways {
			for _, jumps := range []bool{true, false} {
				if jumps && q.Name() == "ordered" || !w.Engine.Bubble && (!jumps || name != "Handle") {
					continue // the leases of an ordered queue are those of its membership
				}
				testdb.Send(w, q, testdb.Texts("a")...)
				h, ended := &handling{lasts: 500 * time.Millisecond, calls: make(chan struct{}, 10)}, make(chan error, 2)
				cfg := chanq.ConsumerConfig{LeaseFor: 2 * time.Second, MaxExtend: time.Second}
				if jumps {
					h.lasts, cfg = testdb.Of(2*time.Second, time.Second), chanq.ConsumerConfig{}
					if w.Engine.Bubble {
						h.lasts = time.Minute
					}
				}
				consumers := []*chanq.Consumer[string]{testdb.Start(w, q, cfg), testdb.Start(w, q, cfg)}
				for _, c := range consumers {
					go func() { ended <- handle(h, c, to) }()
				}
				w.Eventually("it is handled", func() bool { return len(h.calls) == 1 })
				if jumps {
					w.Exec("UPDATE chanq_" + q.Name() + " SET lease_until = due_at")
				}
				w.Eventually("it is handled again, and done", func() bool { return len(h.calls) >= 2 && testdb.Empty(w, q) })
				require.Equal(w, int32(1), h.most.Load(), "%s of a %s queue, a jump: %v", name, q.Name(), jumps)
				for _, c := range consumers {
					c.Stop()
				}
				for range consumers {
					require.NoError(w, <-ended)
				}
			}
		}
	})
}

// hangsBesideItself: a handler that does not return, and a reader that settles nothing, block no message.
func hangsBesideItself(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * time.Second, MaxExtend: time.Second})
	calls, end, ended := make(chan time.Time, 10), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.Handle(2, func(context.Context, *chanq.Lease[string]) error {
			if calls <- time.Now(); len(calls) == 1 {
				<-end
			}
			return nil
		})
	}()
	w.Eventually("the second call has returned", func() bool { return testdb.Empty(w, q) })
	between := -time.Until(<-calls) + time.Until(<-calls)
	w.soon(time.Now().Add(-between), 8*time.Second)
	close(end)
	c.Stop()
	require.NoError(w, <-ended)
}
