package claim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
)

// TestLeasesThatNoReaderMayGetKeepNothingWaiting has messages that have expired before one that has not.
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
