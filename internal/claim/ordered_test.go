package claim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/sqlbatch"
)

func (f *fake) Busy(bool) {}

// newOrdered returns the claims of a consumer of f.
func newOrdered(t *testing.T, f *fake) (*claim.Ordered, *queue) {
	q := newQueue(t, func(c *claim.Config) {
		c.Slots = slots
		c.Traits = sqlbatch.Traits{ClaimRows: 1000, FindIDs: 100, AckItems: 100, NackItems: 100, OneWriter: true}
	})
	o := claim.NewOrdered(q.pace, claim.OrderedConfig{Table: f, Membership: f.here, Paused: func() bool { return false }})
	return o, q
}

// TestLeasesThatNoReaderMayGetKeepNothingWaiting has messages that have expired before one that has not.
func TestLeasesThatNoReaderMayGetKeepNothingWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		o, q := newOrdered(t, f)
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
		require.Equal(t, 7, o.Waiting())
		b := o.Next(4)
		require.Len(t, b.Leases, 1)
		require.EqualValues(t, 7, b.Leases[0].Item.ID[0])
		require.Equal(t, lease.Held, b.Leases[0].State())
		require.Len(t, q.settled, 6)
		require.Empty(t, o.Next(4).Leases)
		q.stop()
		<-ended
	})
}
