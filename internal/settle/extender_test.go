package settle_test

import (
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/sqlbatch"
)

const leaseFor = 30 * time.Second

// extends runs an Extender whose leases end at *ends at the latest, and returns a function that ends it.
func (f *fake) extends(ends *time.Duration) (end func()) {
	f.extender = settle.NewExtender(settle.ExtenderConfig{
		Shared: shared(f, 10*time.Second), Holder: holder{f, ends},
	})
	var running sync.WaitGroup
	running.Go(f.extender.Run)
	end = sync.OnceFunc(func() { f.extender.End(); running.Wait(); f.extender.Close() })
	f.t.Cleanup(end) // for a test that has failed
	return end
}

// holder is the consumer of an Extender, whose leases end at *ends at the latest.
type holder struct {
	*fake
	ends *time.Duration
}

func (h holder) Taken() int64                     { return h.taken.Load() }
func (h holder) Until() ([16]byte, time.Duration) { return [16]byte{9}, *h.ends }
func (h holder) Unread()                          { h.unread.Add(1) }

func (h holder) Lost(_ *lease.Lease, confirmed bool) func() {
	return func() { h.lost = append(h.lost, map[bool]string{true: "lost", false: "expired"}[confirmed]) }
}

func forever() *time.Duration { d := time.Duration(math.MaxInt64); return &d }

// track returns leases of LeaseFor, which are extended.
func (f *fake) track(n int) []*lease.Lease {
	leases := f.leases(n)
	for _, l := range leases {
		l.Period.Begin(base.Now()+leaseFor, base.Now()+time.Hour)
		l.Number.Store(1)
	}
	f.taken.Store(1)
	f.extender.Track(append([]*lease.Lease(nil), leases...))
	return leases
}

func TestLeasesAreExtendedInOneStatementUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		leases := f.track(60)
		time.Sleep(10 * leaseFor)
		synctest.Wait() // an extension that is due at this moment
		for _, l := range leases {
			require.Equal(t, lease.Held, l.State())
			require.Greater(t, l.Period.Deadline()-base.Now(), leaseFor/2)
		}
		require.Equal(t, "extend(60)", f.noted())
		require.LessOrEqual(t, f.count(), 30)
		require.NoError(t, leases[0].EnterTx(), "the transaction locks its row")
		f.forget()
		time.Sleep(leaseFor)
		require.Equal(t, "extend(59)", f.noted())
		end()
		require.Empty(t, f.lost)
	})
}

func TestAutomaticExtensionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		l := f.track(1)[0]
		time.Sleep(59 * time.Minute)
		require.Equal(t, lease.Held, l.State())
		time.Sleep(2 * time.Minute)
		require.Equal(t, lease.Expired, l.State())
		end()
		require.Equal(t, []string{"expired"}, f.lost)
	})
}

// TestAutomaticExtensionBeginsWithAReader also checks that a lease is extended while it is in the buffer, and that the
// consumer detects that readers take none.
func TestAutomaticExtensionBeginsWithAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		leases := f.track(3)
		leases[1].Number.Store(3) // on the channel
		leases[2].Number.Store(0) // not on the channel yet
		time.Sleep(59 * time.Minute)
		f.taken.Store(2)
		time.Sleep(59 * time.Minute)
		require.Equal(t, []lease.State{lease.Expired, lease.Held, lease.Held},
			[]lease.State{leases[0].State(), leases[1].State(), leases[2].State()})
		f.taken.Store(3)
		time.Sleep(59 * time.Minute)
		require.Equal(t, lease.Held, leases[1].State())
		time.Sleep(2 * time.Minute)
		require.Equal(t, lease.Expired, leases[1].State())
		require.Equal(t, lease.Held, leases[2].State())
		time.Sleep(time.Hour)
		require.Equal(t, lease.Held, leases[2].State())
		require.EqualValues(t, 2, f.unread.Load(), "no reader has taken a lease for twice MaxExtend")
		end()
	})
}

// TestNoLeaseOutlivesTheMembership: after that the next owner of its slot may deliver the next message of its key.
func TestNoLeaseOutlivesTheMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ends := base.Now() + leaseFor + 15*time.Second
		end := f.extends(&ends)
		l := f.track(1)[0]
		time.Sleep(leaseFor)
		require.Equal(t, lease.Held, l.State())
		require.Equal(t, ends, l.Period.Deadline())
		held, err := f.extender.Extend(t.Context(), l, time.Hour, time.Second)
		require.NoError(t, err)
		require.True(t, held)
		require.Equal(t, ends, l.Period.Deadline())
		time.Sleep(16 * time.Second)
		require.Equal(t, lease.Expired, l.State())
		end()
	})
}

func TestALeaseThatIsGoneIsLostAndALockedOneIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		leases := f.track(3)
		f.mu.Lock()
		f.rows[leases[0].Item.ID] = 8
		f.locked[leases[1].Item.ID] = true
		f.mu.Unlock()
		time.Sleep(leaseFor / 2)
		require.Equal(t, lease.Lost, leases[0].State())
		require.Equal(t, lease.Held, leases[1].State())
		time.Sleep(leaseFor)
		require.Equal(t, lease.Expired, leases[1].State(), "its time has passed, despite the lock")
		require.Equal(t, lease.Held, leases[2].State())
		end()
		require.Equal(t, []string{"lost", "expired"}, f.lost)
	})
}

// TestAnExtensionThatFailsAloneLosesNoOther: the extension is isolated.
func TestAnExtensionThatFailsAloneLosesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		leases := f.track(40)
		bad := leases[20].Item.ID
		f.failing(func(_ string, ids [][16]byte) error {
			if slices.Contains(ids, bad) {
				return classed{sqlbatch.Refused}
			}
			return nil
		}, nil)
		time.Sleep(3 * leaseFor)
		for i, l := range leases {
			want := lease.Held
			if i == 20 {
				want = lease.Expired
			}
			require.Equal(t, want, l.State(), i)
		}
		end()
	})
}

func TestAnOutageShorterThanHalfALeaseLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		leases := f.track(10)
		f.failing(func(string, [][16]byte) error { return classed{sqlbatch.Refused} }, nil)
		time.Sleep(leaseFor / 2)
		f.failing(nil, nil)
		time.Sleep(leaseFor)
		for _, l := range leases {
			require.Equal(t, lease.Held, l.State())
		}
		end()
	})
}

func TestLeasesThatHaveEndedDoNotStayInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		for range 100 {
			leases := f.track(100)
			for _, l := range leases {
				require.True(t, l.Lose(lease.Lost))
			}
		}
		require.LessOrEqual(t, f.extender.Tracked(), 2*2048)
		end()
	})
}

// TestExtendRepeatsOnlyForALock also checks that it ends with its context.
func TestExtendRepeatsOnlyForALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		end := f.extends(forever())
		l := f.lease(1)
		f.locked[l.Item.ID] = true
		time.AfterFunc(time.Minute, func() { f.mu.Lock(); f.locked[l.Item.ID] = false; f.mu.Unlock() })
		held, err := f.extender.Extend(t.Context(), l, time.Hour, time.Second)
		require.NoError(t, err)
		require.True(t, held)
		require.Greater(t, l.Period.Deadline()-base.Now(), 59*time.Minute)

		f.failing(func(string, [][16]byte) error { return classed{sqlbatch.Unknown} }, nil)
		f.forget()
		_, err = f.extender.Extend(t.Context(), l, time.Hour, time.Second)
		require.ErrorIs(t, err, classed{sqlbatch.Unknown})
		require.Equal(t, 1, f.count())
		end()
	})
}
