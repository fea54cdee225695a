package consume

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

// TestNoLeaseIsHandledBehindTheEnd ends leases while a worker takes them, and checks as
// supervise does: a consumer that was found idle stays idle.
func TestNoLeaseIsHandledBehindTheEnd(t *testing.T) {
	o := &owner{load: newLoad(false), pace: claim.NewPace(claim.Config{}), neighbour: claim.Join(notify.Key{})}
	defer o.neighbour.Leave()
	o.load.halt()
	c := &Consumer{load: o.load, owner: o}
	o.home = lease.Home{Owner: o, Parent: t.Context()}
	o.settler = settle.New(settle.Config{Classify: func(error) sqlbatch.Class { return sqlbatch.Unknown }, Room: 1,
		IsLast:  func(int) bool { return false },
		Awaited: func(*lease.Lease) bool { return false }, Known: func(*lease.Lease, error) {},
		Stored: func(time.Time, settle.Tally, []*lease.Lease) {}}, t.Context())
	o.settler.Close()
	for range 100_000 {
		l := &lease.Lease{Home: &o.home}
		l.Period.Begin(math.MaxInt64, 0)
		o.load.leases.Store(1)
		var idle atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Lose(lease.Expired)
			if o.load.holds() == 0 {
				idle.Store(true)
			}
		}()
		if c.Begin(l) {
			require.False(t, idle.Load(), "a handler runs after the end")
			c.Done(l)
		}
		<-done
	}
}
