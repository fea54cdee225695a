package guarantees

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// Cancel of messages whose handlers run.
var cancelling = []test{
	{"CancelEndsTheContextsOfRunningHandlersWithinASecond", cancelsHandlers},
	{"CancelEndsTheContextOfEachWayToHandle", cancelsEachWay},
	{"AHandlerThatIgnoresItsCancelSettlesNothing", cancelIgnored},
	{"APurgeCancelsHandlers", purgeCancels},
	{"G08_EitherAckTxOrCancelTakesEffect", ackTxOrCancel},
	{"G08_CancelTxEndsAHandlerAfterItsCommit", cancelTxEndsHandler},
	{"ACancelledMessageOfABatchDoesNotFailTheOthers", cancelInBatch},
	{"AnExtensionFindsACancelledMessage", extensionFindsCancel},
	{"HandlersQuickerThanAPollAreNotLookedUp", quickAreNotLookedUp},
	{"RowsOfLongHandlersAreReadOncePerPoll", longAreReadOnce},
	{"ALookUpThatFailsIsRepeated", cancelLookFails},
	{"G10_TheNextMessageOfACancelledOneFollowsItsLease", nextOfCancelled},
	{"G10_AConsumerReturnsItsSlotsAfterACancel", slotsAfterCancel},
}

// cancelWithin is how long after Cancel the context of a handler ends in a bubble: after PollEvery if the handler has run for that long, and
// otherwise a quarter of it later than that.
const cancelWithin = 1250 * time.Millisecond

// elsewhere opens the queue on another pool, as another process does.
func (w *world) elsewhere(name string) *chanq.Queue[string] {
	w.Helper()
	_, db := w.Connect()
	return testdb.OpenOn[string](w, db, name, chanq.Config{})
}

// cancel cancels one message, which must be in the queue.
func (w *world) cancel(q *chanq.Queue[string], id chanq.ID) {
	w.Helper()
	found, err := q.Cancel(w.Soon(), id)
	require.NoError(w, err)
	require.Equal(w, []chanq.ID{id}, found)
}

// cancelled waits for the cause of a context.
func (w *world) cancelled(ctx context.Context) {
	w.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(testdb.Patience):
		require.Fail(w, "the context does not end")
	}
	require.ErrorIs(w, context.Cause(ctx), chanq.ErrCancelled)
	require.ErrorIs(w, context.Cause(ctx), chanq.ErrLeaseLost)
}

// lives passes time in which a context of a cancelled message would end.
func (w *world) lives(ctx context.Context) {
	w.Helper()
	pass(3 * time.Second)
	require.NoError(w, ctx.Err())
}

// cancelsHandlers cancels the messages of 20 handlers, some immediately after the handler has begun.
func cancelsHandlers(w *world) {
	const n = 20
	for name, cfg := range idleKinds {
		q := w.Queue(name, cfg)
		other := w.elsewhere(name)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour}) // no extension finds the cancel in time
		type end struct {
			id    chanq.ID
			at    time.Time
			cause error
		}
		began, ends, left := make(chan chanq.ID, n), make(chan end, n), make(chan error, 1)
		go func() {
			left <- c.Handle(n, func(ctx context.Context, l *chanq.Lease[string]) error {
				began <- l.ID
				<-ctx.Done()
				ends <- end{l.ID, time.Now(), context.Cause(ctx)}
				return ctx.Err()
			})
		}()
		at := map[chanq.ID]time.Time{}
		for i := range n {
			if i == n/2 {
				pass(2345 * time.Millisecond)
				for id := range at {
					w.cancel(other, id)
					at[id] = time.Now()
					pass(37 * time.Millisecond)
				}
			}
			w.sendApart(q, fmt.Sprint(i))
			id := testdb.Receive(w, began, "a handler begins")
			if at[id] = time.Now(); i >= n/2 {
				w.cancel(other, id)
				pass(61 * time.Millisecond) // at any moment of the consumer's pauses
			}
		}
		for range n {
			e := testdb.Receive(w, ends, "its context ends")
			require.ErrorIs(w, e.cause, chanq.ErrCancelled, name)
			took := e.at.Sub(at[e.id])
			w.Logf("%s: %v", name, took)
			if w.Engine.Bubble {
				require.LessOrEqual(w, took, cancelWithin+10*time.Millisecond, name)
			}
		}
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "Handle returns"))
		require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q), name)
		s := c.Stats()
		require.Zero(w, s.Acked+s.Nacked+s.Released+s.Dead, "nothing is settled")
	}
}

// cancelsEachWay: the context ends in each way to receive, with which the handler does nothing else.
func cancelsEachWay(w *world) {
	untilEnd := func(ends chan<- error, ctx context.Context) error {
		<-ctx.Done()
		ends <- context.Cause(ctx)
		return context.Cause(ctx)
	}
	for way, read := range map[string]func(c *chanq.Consumer[string], ends chan<- error) error{
		"handle": func(c *chanq.Consumer[string], ends chan<- error) error {
			return c.Handle(1, func(ctx context.Context, _ *chanq.Lease[string]) error { return untilEnd(ends, ctx) })
		},
		"batches": func(c *chanq.Consumer[string], ends chan<- error) error {
			return c.HandleBatches(1, 5, 0, func(ctx context.Context, _ []*chanq.Lease[string]) error { return untilEnd(ends, ctx) })
		},
		"pipe": func(c *chanq.Consumer[string], ends chan<- error) error {
			return chanq.Pipe(c, w.Queue("output", chanq.Config{}), 1, func(ctx context.Context, _ *chanq.Lease[string]) ([]chanq.Message[string], error) {
				_ = untilEnd(ends, ctx)
				return testdb.Texts("an output"), nil
			})
		},
		"channel": func(c *chanq.Consumer[string], ends chan<- error) error {
			for l := range c.C() {
				_ = untilEnd(ends, l.Context())
			}
			return nil
		},
		"late use of the context": func(c *chanq.Consumer[string], ends chan<- error) error {
			for l := range c.C() {
				require.ErrorIs(w, l.Wait(w.Soon()), chanq.ErrCancelled)
				_ = untilEnd(ends, l.Context())
			}
			return nil
		},
	} {
		for kind, cfg := range idleKinds {
			name := fmt.Sprintf("%s_%.4s", kind, way)
			q := w.Queue(name, cfg)
			id := testdb.Send(w, q, testdb.Texts("a")...)[0]
			c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
			ends, left := make(chan error, 1), make(chan error, 1)
			go func() { left <- read(c, ends) }()
			w.Eventually("it is read", func() bool { s := c.Stats(); return s.Held == 1 && s.Buffered == 0 })
			w.cancel(w.elsewhere(name), id)
			require.ErrorIs(w, testdb.Receive(w, ends, name), chanq.ErrCancelled, name)
			c.Stop()
			require.NoError(w, testdb.Receive(w, left, "it returns"), name)
			require.NoError(w, c.Shutdown(w.Soon()), "no lease is held")
			require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q), name)
		}
	}
	require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, testdb.OpenOn[string](w, w.DB, "output", chanq.Config{})), "the pipe has stored no output")
}

func cancelIgnored(w *world) {
	for name, settle := range map[string]func(*chanq.Lease[string]) error{
		"ack":     (*chanq.Lease[string]).Ack,
		"nack":    func(l *chanq.Lease[string]) error { return l.Nack(errBad) },
		"dead":    func(l *chanq.Lease[string]) error { return l.Nack(chanq.DeadLetter(errBad)) },
		"release": (*chanq.Lease[string]).Release,
		"extend":  func(l *chanq.Lease[string]) error { return l.Extend(w.Soon(), time.Hour) },
		"wait":    func(l *chanq.Lease[string]) error { return l.Wait(w.Soon()) },
		"acks":    func(l *chanq.Lease[string]) error { return chanq.Ack(w.Soon(), l) },
		"ack tx": func(l *chanq.Lease[string]) error {
			return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return l.AckTx(ctx, tx) })
		},
		"acks tx": func(l *chanq.Lease[string]) error {
			return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return chanq.AckTx(ctx, tx, l) })
		},
	} {
		for kind, cfg := range idleKinds {
			var lost losses
			cfg.Hooks, cfg.Retain = lost.hooks(), time.Hour
			q := w.Queue(kind, cfg)
			id := testdb.Send(w, q, testdb.Texts("a")...)[0]
			c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
			l := testdb.Take(w, c, 1)[0]
			w.cancel(w.elsewhere(kind), id)
			w.cancelled(l.Context())
			w.Eventually("the lease is known to be lost", func() bool { return c.Stats().Held == 0 })
			err := settle(l)
			require.ErrorIs(w, err, chanq.ErrCancelled, name)
			require.ErrorIs(w, err, chanq.ErrLeaseLost, name)
			require.NoError(w, c.Shutdown(w.Soon()))
			require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q), name)
			require.Zero(w, c.Stats().Acked+c.Stats().Nacked+c.Stats().Released+c.Stats().Dead, name)
			require.Equal(w, []chanq.ID{id}, lost.but(), "the hook is called once")
		}
	}
}

func purgeCancels(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a")...)
	l := testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour}), 1)[0]
	w.holderIsKnown(q, l.ID)
	changed, err := testdb.Admin(q).Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateLeased, All: true}, chanqadmin.Change{})
	require.NoError(w, err)
	require.Equal(w, 1, changed.Messages)
	w.cancelled(l.Context())
}

// ackTxOrCancel holds a transaction of one of the two open while the other call waits for its row. The transaction also stores an effect.
func ackTxOrCancel(w *world) {
	w.skipInMemory()
	effects := w.Queue("effects", chanq.Config{})
	for kind, cfg := range idleKinds {
		q := w.Queue(kind, cfg)
		faults, db := w.Connect()
		other := testdb.OpenOn[string](w, db, kind, chanq.Config{})
		for _, ackFirst := range []bool{true, false} {
			for _, commit := range []bool{true, false} {
				note := fmt.Sprintf("%s, ack first: %v, commit: %v", kind, ackFirst, commit)
				id := testdb.Send(w, q, testdb.Texts("a")...)[0]
				c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
				l := testdb.Take(w, c, 1)[0]
				ack := func(tx *sql.Tx) error { // the part of the handler
					if err := l.AckTx(w.Soon(), tx); err != nil {
						return err
					}
					_, err := effects.SendTx(w.Soon(), tx, chanq.Msg("effect"))
					return err
				}
				// The later call has begun when its connection has an operation.
				began := make(chan struct{}, 100)
				listen := func(f *faultdb.Connector, st func(faultdb.Op) bool) {
					f.Inject(func(op faultdb.Op) faultdb.Fault {
						if st(op) {
							began <- struct{}{}
						}
						return faultdb.Fault{}
					})
				}
				first := w.begin(w.DB)
				var found []chanq.ID
				var acked, err error
				over := make(chan struct{})
				end := first.Rollback
				if commit {
					end = first.Commit
				}
				if ackFirst {
					require.NoError(w, ack(first), note)
					st := w.Statements(kind).Cancel(nil)
					listen(faults, func(op faultdb.Op) bool { return testdb.Runs(op, st) })
					go func() {
						defer close(over)
						found, err = other.Cancel(w.Soon(), id)
					}()
					testdb.Receive(w, began, "Cancel begins")
				} else {
					found, err = q.CancelTx(w.Soon(), first, id)
					require.NoError(w, err, note)
					listen(faults, func(op faultdb.Op) bool { return op.Kind == faultdb.Exec || op.Kind == faultdb.Query })
					go func() {
						defer close(over)
						later := w.begin(db)
						if acked = ack(later); acked != nil {
							require.NoError(w, later.Rollback())
						} else {
							require.NoError(w, later.Commit())
						}
					}()
					if !w.Engine.Dialect.Traits().OneWriter { // there the later transaction waits before its first statement
						testdb.Receive(w, began, "AckTx begins")
					}
				}
				require.NoError(w, end(), note)
				testdb.Receive(w, over, note)
				faults.Inject(nil)
				require.NoError(w, err, note)
				if !ackFirst && !commit { // CancelTx has reported what its transaction found
					found = nil
				}
				ackWins := ackFirst == commit
				if ackWins {
					require.NoError(w, acked, note)
					require.Empty(w, found, note)
				} else {
					require.Equal(w, []chanq.ID{id}, found, note)
				}
				if !ackWins && !ackFirst {
					require.ErrorIs(w, acked, chanq.ErrLeaseLost, note)
				}
				require.Equal(w, ackWins, testdb.Counted(w, effects).Ready == 1, note)
				require.True(w, testdb.Empty(w, q), note)
				if ackWins {
					for _, l := range testdb.Lease(w, effects, 1, time.Minute) {
						require.NoError(w, l.Ack())
					}
				}
				_ = l.Release() // of a lease whose transaction was rolled back
				require.NoError(w, c.Shutdown(w.Soon()), note)
			}
		}
	}
}

func cancelTxEndsHandler(w *world) {
	w.skipInMemory()
	for kind, cfg := range idleKinds {
		for _, commit := range []bool{false, true} {
			q := w.Queue(kind, cfg)
			id := testdb.Send(w, q, testdb.Texts("a")...)[0]
			c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
			l := testdb.Take(w, c, 1)[0]
			tx := w.begin(w.DB)
			_, err := q.CancelTx(w.Soon(), tx, id)
			require.NoError(w, err)
			w.lives(l.Context())
			if !commit {
				require.NoError(w, tx.Rollback())
				w.lives(l.Context())
				w.ack(l)
			} else {
				require.NoError(w, tx.Commit())
				w.cancelled(l.Context())
			}
			require.NoError(w, c.Shutdown(w.Soon()))
		}
	}
}

func cancelInBatch(w *world) {
	for kind, cfg := range idleKinds {
		q := w.Queue(kind, cfg)
		ids := w.sendApart(q, "0", "1", "2", "3")
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
		w.Eventually("all are buffered", func() bool { return c.Stats().Buffered == len(ids) })
		began, left := make(chan struct{}, 1), make(chan error, 1)
		var again []string
		go func() {
			left <- c.HandleBatches(1, len(ids), 0, func(ctx context.Context, ls []*chanq.Lease[string]) error {
				if len(ls) == 1 {
					again = append(again, ls[0].Body)
					return nil
				}
				began <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		testdb.Receive(w, began, "the batch begins")
		w.cancel(w.elsewhere(kind), ids[2])
		w.Eventually("the others are acked", func() bool { return testdb.Empty(w, q) })
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "it returns"))
		slices.Sort(again)
		require.Equal(w, []string{"0", "1", "3"}, again, kind)
		require.EqualValues(w, 3, c.Stats().Acked)
		require.Zero(w, c.Stats().Nacked, "no attempt has failed")
	}
}

// extensionFindsCancel: polls are far apart, and so are look-ups.
func extensionFindsCancel(w *world) {
	w.onKinds(func(q *chanq.Queue[string]) {
		testdb.Send(w, q, testdb.Texts("a", "b")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease, PollEvery: time.Hour})
		ls := testdb.Take(w, c, 2)
		w.cancel(q, ls[0].ID)
		w.cancelled(ls[0].Context())
		w.cancel(q, ls[1].ID)
		require.ErrorIs(w, ls[1].Extend(w.Soon(), time.Hour), chanq.ErrCancelled)
		w.cancelled(ls[1].Context())
	})
}

// lookUps counts the look-ups of a queue's rows.
func (w *world) lookUps(name string) *atomic.Int64 {
	var n atomic.Int64
	st := w.Statements(name).Look(nil)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, st) {
			n.Add(1)
		}
		return faultdb.Fault{}
	})
	return &n
}

func quickAreNotLookedUp(w *world) {
	if !w.Engine.Bubble {
		w.Skip("SKIPPED: a handler may take longer on a real clock")
	}
	w.onKinds(func(q *chanq.Queue[string]) {
		const n = 200
		w.sendApart(q, numbers(n)...)
		looked := w.lookUps(q.Label())
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Minute})
		left := make(chan error, 1)
		go func() {
			left <- c.Handle(5, func(_ context.Context, l *chanq.Lease[string]) error {
				pass(990 * time.Millisecond)
				return nil
			})
		}()
		w.Eventually("all are handled", func() bool { return c.Stats().Acked == n })
		c.Stop()
		require.NoError(w, testdb.Receive(w, left, "it returns"))
		require.Zero(w, looked.Load())
	})
}

func longAreReadOnce(w *world) {
	if !w.Engine.Bubble {
		w.Skip("SKIPPED: it counts by the clock")
	}
	const polls = 10
	for _, n := range []int{1, 450} { // 450 are more than a statement of SQL Server may have
		q := w.Queue(fmt.Sprint("work", n), chanq.Config{})
		testdb.Send(w, q, testdb.Texts(numbers(n)...)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: n, LeaseFor: time.Hour})
		leases := testdb.Take(w, c, n)
		looked := w.lookUps(q.Label())
		pass(polls*time.Second + time.Millisecond)
		most := int64(polls)
		if n > w.Engine.Dialect.Traits().FindIDs {
			most *= 2
		}
		require.LessOrEqual(w, looked.Load(), most)
		require.GreaterOrEqual(w, looked.Load(), most*8/10)
		for _, l := range leases {
			require.NoError(w, l.Ack())
		}
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

func cancelLookFails(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := testdb.Take(w, c, 1)[0]
	st := w.Statements("work").Look(nil)
	hit := w.Strike(w.Broken(false), func(op faultdb.Op) bool { return testdb.Runs(op, st) })
	w.Eventually("a look-up fails", func() bool { return hit.Struck() != "" })
	w.lives(l.Context())
	w.cancel(q, id)
	w.cancelled(l.Context())
}

// nextOfCancelled: the next message of the key is delivered after the context of the holder has ended, whether the holder settles or not.
func nextOfCancelled(w *world) {
	q := w.keys(chanq.Config{})
	ids := testdb.Send(w, q, keyed("a", 1, 3)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	for i, settles := range []bool{false, true} {
		l := w.next(c, fmt.Sprint("a/", i+1))
		ctx := l.Context()
		w.closed(q, c)
		w.cancel(w.elsewhere("work"), ids[i])
		select {
		case next := <-c.C():
			require.Fail(w, "delivered before the context has ended", next.Body)
		case <-ctx.Done():
		}
		w.cancelled(ctx)
		if settles {
			require.ErrorIs(w, l.Ack(), chanq.ErrCancelled)
		}
	}
	w.ack(w.next(c, "a/3"))
	require.NoError(w, c.Shutdown(w.Soon()))
}

// slotsAfterCancel: another consumer gets the slots, and the next message, of one that stops.
func slotsAfterCancel(w *world) {
	q := w.keys(chanq.Config{})
	ids := testdb.Send(w, q, keyed("a", 1, 2)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	l := w.next(c, "a/1")
	ctx := l.Context()
	c.Stop()
	w.cancel(q, ids[0])
	w.cancelled(ctx)
	require.NoError(w, c.Shutdown(w.Soon()))
	next := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: time.Hour})
	w.ack(w.next(next, "a/2"))
}
