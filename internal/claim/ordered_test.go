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
		o := claim.NewOrdered(f.owned, f, func() bool { return false })
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

// idleness counts how often a queue was found idle.
type idleness struct{ found atomic.Int64 }

func (i *idleness) Begin() (now uint64, quiet bool) { return 1, true }
func (i *idleness) Idle(now uint64) (stopped bool) {
	if now > 0 {
		i.found.Add(1)
	}
	return false
}

// TestSlotsOfAFormerMembershipAreNoReasonToStop: the consumer takes them when the database counts that membership as ended.
func TestSlotsOfAFormerMembershipAreNoReasonToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := &idleness{}
		f := newFake(t, func(c *claim.Config) { c.Idleness = idle })
		o := claim.NewOrdered(f.owned, f, func() bool { return false })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.Run()
		}()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Positive(t, idle.found.Load(), "it owned all slots, and they were empty")
		idle.found.Store(0)
		f.former = true
		f.join(time.Hour)
		f.owned.Hurry() // as after a first heartbeat
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.Zero(t, idle.found.Load())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Positive(t, idle.found.Load(), "after LeaseFor another consumer has them")
		f.queue.stop()
		<-ended
	})
}
