package settle_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

func settleAs(t *testing.T, l *lease.Lease, op lease.Op) {
	t.Helper()
	require.NoError(t, l.Settle(context.Background(), op, lease.Settlement{Delay: time.Second, Text: "why"}))
}

// TestTheOrderOfCallsOfABatch: Known gets each outcome first, then the owner all together, and then Stored.
func TestTheOrderOfCallsOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		for _, l := range f.leases(50) {
			settleAs(t, l, lease.Ack)
		}
		end()
		require.Equal(t, "ack(50) known changed stored", f.noted())
		require.Equal(t, 53, f.count(), "Known is called for each settle")
		require.Equal(t, []settle.Tally{{Acked: 50}}, f.stored)
		require.Len(t, f.ended, 50)
	})
}

func TestEachWayToSettleHasAStatementOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(func(c *settle.Config) { c.Traits.OneWriter = true })
		leases := f.leases(10)
		for i, l := range leases {
			settleAs(t, l, lease.Op(i%5))
		}
		end()
		var sum settle.Tally
		for _, s := range f.stored {
			sum.Acked, sum.Nacked, sum.Released, sum.Dead = sum.Acked+s.Acked, sum.Nacked+s.Nacked,
				sum.Released+s.Released, sum.Dead+s.Dead
		}
		require.Equal(t, settle.Tally{Acked: 2, Nacked: 2, Released: 4, Dead: 2}, sum)
		for _, call := range []string{"ack(2)", "nack(2)", "snooze(2)", "release(2)", "dead-letter(2)"} {
			require.Contains(t, f.calls, call)
		}
	})
}

func TestANackOfTheLastAttemptDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		last, lapsed := f.lease(1), f.lease(2)
		last.Attempt = 3
		lapsed.Attempt, lapsed.Lapses = 3, 1 // its first lease expired, which was not a failure
		settleAs(t, last, lease.Nack)
		settleAs(t, lapsed, lease.Nack)
		end()
		require.Equal(t, lease.Dead, last.Op)
		require.Equal(t, lease.Nack, lapsed.Op)
	})
}

// TestEachSettleHasItsOwnOutcome: rows that a statement does not return are looked up first.
func TestEachSettleHasItsOwnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		stored, taken, gone, locked := f.lease(1), f.lease(2), f.lease(3), f.lease(4)
		f.rows[taken.Item.ID] = 8
		delete(f.rows, gone.Item.ID)
		f.locked[locked.Item.ID] = true
		for _, l := range []*lease.Lease{stored, taken, gone, locked} {
			settleAs(t, l, lease.Ack)
		}
		require.NoError(t, stored.Wait(t.Context()))
		require.ErrorIs(t, taken.Wait(t.Context()), lease.ErrLost)
		require.ErrorIs(t, gone.Wait(t.Context()), lease.ErrLost)
		time.Sleep(3 * time.Second)
		require.Equal(t, lease.Settling, locked.State(), "it is stored later")
		f.mu.Lock()
		f.locked = map[[16]byte]bool{}
		f.mu.Unlock()
		require.NoError(t, locked.Wait(t.Context()))
		end()
	})
}

// TestAnUnknownOutcomeBelongsToItsStatement: a wrong mark would turn a lost lease into a success.
func TestAnUnknownOutcomeBelongsToItsStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(func(c *settle.Config) { c.Traits.OneWriter = true })
		applied, lost := f.lease(1), f.lease(2)
		broke := false
		f.failing(nil, func(op string) error {
			if op == "ack" && !broke {
				broke = true
				return classed{sqlbatch.Unknown}
			}
			return nil
		})
		delete(f.rows, lost.Item.ID) // taken by another consumer, and its nack gets no broken connection
		settleAs(t, applied, lease.Ack)
		settleAs(t, lost, lease.Nack)
		require.NoError(t, applied.Wait(t.Context()))
		require.ErrorIs(t, lost.Wait(t.Context()), lease.ErrLost)
		end()
	})
}

func TestARefusedSettleIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		bad, good := f.lease(1), f.lease(2)
		f.failing(func(_ string, ids [][16]byte) error {
			if slices.Contains(ids, bad.Item.ID) {
				return classed{sqlbatch.BadRow}
			}
			return nil
		}, nil)
		settleAs(t, bad, lease.Ack)
		settleAs(t, good, lease.Ack)
		require.NoError(t, good.Wait(t.Context()))
		var failed *lease.FailedError
		require.ErrorAs(t, bad.Wait(t.Context()), &failed)
		require.True(t, failed.Refused)
		require.False(t, failed.Unknown)
		require.Empty(t, f.broken)

		f.failing(func(string, [][16]byte) error { return classed{sqlbatch.NoSchema} }, nil)
		other := f.lease(3)
		settleAs(t, other, lease.Nack)
		require.ErrorAs(t, other.Wait(t.Context()), &failed)
		require.False(t, failed.Refused, "every statement would get that error")
		require.Equal(t, []string{"nack"}, f.broken)
		end()
	})
}

func TestWhatIsGivenUpIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ctx, giveUp := context.WithCancel(t.Context())
		end := f.start(nil)
		end()
		f.settler = settle.New(settle.Config{
			Shared: shared(f, time.Second), Owner: f, Linger: time.Millisecond, Room: 10,
		}, ctx)
		var running sync.WaitGroup
		running.Go(f.settler.Run)
		locked := f.lease(1)
		f.locked[locked.Item.ID] = true
		settleAs(t, locked, lease.Ack)
		time.Sleep(time.Second)
		giveUp()
		f.settler.Close()
		running.Wait()
		require.ErrorIs(t, locked.Wait(t.Context()), settle.ErrLocked)
		require.ErrorIs(t, f.lease(2).Settle(t.Context(), lease.Ack, lease.Settlement{}), batch.ErrClosed)
	})
}

func TestASettleDoesNotLingerBeyondItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, at := range map[time.Duration]time.Duration{time.Hour: time.Minute, time.Minute: 0, 0: 0} {
			f := newFake(t)
			end := f.start(func(c *settle.Config) { c.Linger = time.Minute })
			l := f.lease(1)
			l.Period.Begin(base.Now()+left, base.Now()+left)
			began := time.Now()
			settleAs(t, l, lease.Ack)
			for l.State() != lease.Settled {
				time.Sleep(time.Second)
			}
			require.InDelta(t, at, time.Since(began), float64(2*time.Second), "%v left", left)
			end()
		}
	})
}

// TestAStatementThatMayTakeLongExtendsItsLeaseFirst: nothing can extend the lease of a row that a settle has locked.
func TestAStatementThatMayTakeLongExtendsItsLeaseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.start(nil)
		slow := f.lease(0)
		f.slow[slow.Item.ID] = 15 * time.Second // longer than a try
		settleAs(t, slow, lease.Ack)
		for n := byte(1); slow.State() != lease.Settled; n++ { // the database works for others
			other := f.lease(n)
			settleAs(t, other, lease.Ack)
			time.Sleep(time.Second)
		}
		require.NoError(t, slow.Wait(t.Context()))
		require.Contains(t, f.noted(), "owner extends ack(1)")
		end()
	})
}
