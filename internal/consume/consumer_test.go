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
	c := &Consumer{load: newLoad()}
	o := &owner{of: c, pace: claim.NewPace(claim.Config{}), neighbours: claim.Join(notify.Key{})}
	defer o.neighbours.Leave()
	c.load.halt()
	c.owner = o
	o.home = lease.Home{Owner: o, Parent: t.Context()}
	o.settler = settle.New(settle.Config{
		Shared: settle.Shared{Classify: func(error) sqlbatch.Class { return sqlbatch.Unknown }}, Room: 1,
		Owner: unconcerned{}}, t.Context())
	o.settler.Close()
	for range 100_000 {
		l := &lease.Lease{Home: &o.home}
		l.Period.Begin(math.MaxInt64, 0)
		c.load.leases.Store(1)
		var idle atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Lose(lease.Expired)
			if c.load.holds() == 0 {
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

// unconcerned is the owner of a settler that stores nothing.
type unconcerned struct{}

func (unconcerned) IsLast(int) bool                                { return false }
func (unconcerned) Awaited(*lease.Lease) bool                      { return false }
func (unconcerned) Known(*lease.Lease, error)                      {}
func (unconcerned) Stored(time.Time, settle.Tally, []*lease.Lease) {}
func (unconcerned) Broken(string, error)                           {}
