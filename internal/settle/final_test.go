package settle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/sqlbatch"
)

// The consumer makes the message ready again before the answer to an extension comes. A settle of unknown outcome must
// not count the changed row as its own work, as it would before the deadline.
func TestAnExtensionThatIsAnsweredAfterTheEndOfALeaseDoesNotProlongIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		defer f.extends(forever())()
		l := f.lease(1)
		l.Message = &order.Message{}
		l.Period.Begin(base.Now()+2*time.Second, base.Now()+time.Hour)
		l.Number.Store(1)
		f.taken.Store(1)
		f.slow[l.Item.ID] = 3 * time.Second
		f.extender.Track([]*lease.Lease{l})
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, lease.Expired, l.State())
		require.Less(t, l.Period.Deadline(), base.Now())
		f.mu.Lock()
		f.rows[l.Item.ID]++
		f.slow[l.Item.ID] = 0
		f.mu.Unlock()
		tries := 0
		f.failing(func(op string, _ [][16]byte) error {
			if tries++; op == "nack" && tries == 1 {
				return classed{sqlbatch.Unknown}
			}
			return nil
		}, nil)
		defer f.start(nil)()
		require.NoError(t, l.Settle(t.Context(), lease.Nack, lease.Settlement{Text: "failed"}))
		require.ErrorIs(t, l.Wait(t.Context()), lease.ErrHidden)
	})
}

// The transaction of a pipe whose commit had no answer might have acked the message that is then to be dead-lettered.
func TestAMessageThatAPipeMightHaveAckedIsNotCountedAsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		defer f.start(nil)()
		l := f.lease(1)
		l.Attempt = 3
		require.True(t, l.Take(lease.Nack))
		delete(f.rows, l.Item.ID)
		l.Rare.Write().MaybeApplied = true
		f.settler.AddAll(l)
		require.ErrorIs(t, l.Wait(t.Context()), lease.ErrHidden)
	})
}
