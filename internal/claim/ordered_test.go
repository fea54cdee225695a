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

// TestSlotsOfAFormerMembershipAreNoReasonToStop: the consumer takes them when the database counts that membership as
// ended.
func TestSlotsOfAFormerMembershipAreNoReasonToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var halted atomic.Bool
		f := newFake(t, func(c *claim.Config) {
			c.Halt = func() { halted.Store(true) }
			c.Holder = counted{c.Holder, new(atomic.Int64)}
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

// counted is a Holder with a number of leases.
type counted struct {
	claim.Holder
	leases *atomic.Int64
}

func (c counted) Held() (leases, handlers int) { return int(c.leases.Load()), 0 }

// TestALeaseThatEndsDuringAReadIsNoReasonToStop: its handler might have sent a message that the read did not see.
func TestALeaseThatEndsDuringAReadIsNoReasonToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leases atomic.Int64
		leases.Store(1)
		f := newFake(t, func(c *claim.Config) {
			c.Halt = func() {}
			c.Holder = counted{c.Holder, &leases}
		})
		f.fail = func(op string) error {
			if op == "read" {
				leases.Store(0)
			}
			return nil
		}
		claim.NewOrdered(f.owned, f).Run()
		require.Equal(t, 2, f.count("read"))
	})
}
