package consume

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

// TestNoLeaseIsHandledBehindTheEnd has leases end while a worker takes them, and
// looks as supervise does: what it finds idle stays idle.
func TestNoLeaseIsHandledBehindTheEnd(t *testing.T) {
	c := &Consumer{drained: make(chan struct{}, 1), pace: claim.NewPace(claim.Config{}), abandoned: t.Context()}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	c.stopNow()
	c.home = lease.Home{Owner: c, Parent: t.Context()}
	c.settler = settle.New(settle.Config{Owner: c, Classify: func(error) sqlbatch.Class { return sqlbatch.Unknown }, Room: 1, IsLast: func(int) bool { return false },
		Awaited: func(*lease.Lease) bool { return false }, Known: func(*lease.Lease, error) {}, Stored: func(time.Time, settle.Tally, []*lease.Lease) {}}, t.Context())
	c.settler.Close()
	for range 100_000 {
		l := &lease.Lease{Home: &c.home}
		l.Begin(math.MaxInt64, 0)
		c.held.Store(1)
		var idle atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Lose(lease.Expired)
			if c.held.Load()+c.working.Load() == 0 {
				idle.Store(true)
			}
		}()
		if c.Begin(l) {
			require.False(t, idle.Load(), "a handler runs behind the end")
			c.Done()
		}
		<-done
	}
}
