package claim_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
)

// TestLeasesThatNoReaderMayGetKeepNothingWaiting has expired messages before one that has not expired.
func TestLeasesThatNoReaderMayGetKeepNothingWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		q := f.queue
		o := claim.NewOrdered(f.owned, f)
		f.send("abcdefg")
		for i := range f.rows[:6] {
			f.rows[i].expired = true
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.Run()
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 7, f.owned.Waiting())
		b := f.owned.Next(4)
		require.Len(t, b.Leases, 1)
		require.EqualValues(t, 7, b.Leases[0].Item.ID[0])
		require.Equal(t, lease.Held, b.Leases[0].State())
		require.Len(t, q.settled, 6)
		require.Empty(t, f.owned.Next(4).Leases)
		q.stop()
		<-ended
	})
}

// free is a Holder without a lease.
type free struct{ claim.Holder }

func (free) Held() (leases, handlers int) { return 0, 0 }

// TestSlotsOfAFormerMembershipAreNoReasonToStop: the consumer takes them when the database counts that membership as
// ended.
func TestSlotsOfAFormerMembershipAreNoReasonToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var halted atomic.Bool
		f := newFake(t, func(c *claim.Config) {
			c.Halt = func() { halted.Store(true) }
			c.Holder = free{c.Holder}
		})
		o := claim.NewOrdered(f.owned, f)
		o.Run()
		require.True(t, halted.Load(), "it owned all slots, and they were empty")
		halted.Store(false)
		time.Sleep(2 * time.Hour) // the membership ends
		f.former = true
		f.join(time.Hour)
		f.owned.Hurry() // as after a first heartbeat
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.Run()
		}()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.False(t, halted.Load())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.True(t, halted.Load(), "after LeaseFor another consumer has them")
		<-ended
	})
}
