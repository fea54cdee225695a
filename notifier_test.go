package chanq

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tally is a Notifier that counts.
type tally struct {
	rings, messages atomic.Int64 // a ring may be a timer's
	listens, stops  int
	ear             chan struct{}
	slots           []int // of the last Listen
	last            atomic.Pointer[Notification]
}

func (b *tally) Notify(n Notification) {
	b.rings.Add(1)
	b.messages.Add(int64(n.Messages))
	b.last.Store(&n)
}

func (b *tally) Listen(_ string, slots []int) (<-chan struct{}, func()) {
	b.listens++
	b.slots = slots
	b.ear = make(chan struct{}, 1)
	return b.ear, func() { b.stops++ }
}

func TestABurstRingsAtOnceThenSeldomAndAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		r := debouncer{notifier: b}
		r.notify(1, slotNames{}, true)
		require.EqualValues(t, 1, b.rings.Load(), "the first at once")
		for range 9 {
			time.Sleep(time.Millisecond)
			r.notify(1, slotNames{}, true)
		}
		require.EqualValues(t, 1, b.rings.Load())
		time.Sleep(notifyEvery)
		synctest.Wait()
		require.EqualValues(t, 2, b.rings.Load(), "and again for what came since, though no more does")
		require.EqualValues(t, 10, b.messages.Load())
		time.Sleep(time.Second)
		r.notify(1, slotNames{}, true)
		r.notify(1, slotNames{}, true)
		r.notify(1, slotNames{}, false)
		require.EqualValues(t, 4, b.rings.Load(), "at the end at once")
		require.EqualValues(t, 13, b.messages.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 4, b.rings.Load(), "and not twice")
		r.notify(1, slotNames{}, true)
		r.notify(1, slotNames{}, true)
		r.flush()
		require.EqualValues(t, 15, b.messages.Load())
	})
}

func TestNotificationsThatWaitNameTheSlotsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		d := debouncer{notifier: b, queue: "public.orders", ordered: true}
		in := func(slots ...int) (named slotNames) {
			for _, slot := range slots {
				named.add(slot)
			}
			return named
		}
		last := func() Notification { return *b.last.Load() }
		d.notify(2, in(7, 3, 7), true)
		require.Equal(t, Notification{"public.orders", 2, []int{3, 7}}, last())
		d.notify(1, in(5), true)
		d.notify(2, in(1, 5), true)
		time.Sleep(notifyEvery)
		synctest.Wait()
		require.Equal(t, Notification{"public.orders", 3, []int{1, 5}}, last())
		d.notify(1, in(5), true)
		d.notify(0, anySlot, false)
		require.Equal(t, Notification{"public.orders", 0, nil}, last())
		d.notify(1, in(5), false)
		require.Equal(t, Notification{"public.orders", 1, []int{5}}, last(), "the one before is forgotten")
		var many []int
		for slot := range mostNamed {
			many = append(many, slot)
		}
		d.notify(mostNamed, in(many...), false)
		require.Equal(t, many, last().Slots)
		d.notify(1, in(many...), true)
		d.notify(1, in(mostNamed), false)
		require.Equal(t, Notification{"public.orders", 0, nil}, last(), "too many slots")
		plain := debouncer{notifier: b, queue: "public.mail"}
		plain.notify(3, slotNames{}, false)
		require.Equal(t, Notification{"public.mail", 3, nil}, last())
		plain.notify(3, slotNames{}, true)
		plain.notify(0, anySlot, false)
		require.Equal(t, Notification{"public.mail", 0, nil}, last())
	})
}

func TestAConsumerWhoseSlotsMoveListensForTheNewOnes(t *testing.T) {
	b := &tally{}
	owned := []int{}
	s := subscription{notifier: b, owned: func() []int { return owned }}
	require.False(t, s.follow(), "it does not listen")
	s.subscribe()
	require.Equal(t, []int{}, b.slots, "it owns none")
	require.False(t, s.follow())
	owned = []int{2, 5}
	require.True(t, s.follow())
	require.Equal(t, []int{2, 5}, b.slots)
	require.Equal(t, []int{2, 1}, []int{b.listens, b.stops})
	require.False(t, s.follow())
	s.unsubscribe()
	owned = []int{2}
	require.False(t, s.follow())
	plain := subscription{notifier: b}
	plain.subscribe()
	require.Nil(t, b.slots)
	require.False(t, plain.follow())
}

// leaver leaves as a failing test does, or panics.
type leaver struct{ panics bool }

func (b leaver) Notify(Notification) { b.fail() }

func (b leaver) Listen(string, []int) (<-chan struct{}, func()) {
	b.fail()
	return nil, nil
}

func (b leaver) fail() {
	if b.panics {
		panic("notify")
	}
	runtime.Goexit()
}

func TestANotifierThatPanicsEndsNothing(t *testing.T) {
	for _, b := range []leaver{{true}, {false}} {
		(&debouncer{notifier: b}).notify(1, slotNames{}, false)
		s := subscription{notifier: b}
		s.subscribe()
		require.Nil(t, s.heard)
		require.False(t, s.quiet())
		s.unsubscribe()
	}
}

func TestWhoIsToldThatNothingIsHeardSitsDownAgainLater(t *testing.T) {
	b := &tally{}
	s := subscription{notifier: b}
	s.subscribe()
	s.subscribe()
	require.Equal(t, 1, b.listens, "once")
	require.False(t, s.quiet(), "nothing was heard yet")
	require.True(t, s.received(true))
	require.True(t, s.quiet())
	b.ear <- struct{}{}
	require.False(t, s.quiet(), "there is a ring")
	require.True(t, s.received(false), "rings may have been lost")
	require.Equal(t, 1, b.stops)
	s.subscribe()
	require.Equal(t, 1, b.listens)
	require.LessOrEqual(t, s.deaf(), deafFor)
	s.again = 1 // long ago
	s.subscribe()
	require.Equal(t, 2, b.listens)
	require.False(t, s.received(false), "nothing was promised")
	require.Equal(t, 2, b.stops)
}

func TestWhoMaySitDownSinceItsLastLookDoesSoBeforeItSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, wait := range map[string]func(*subscription){
			"told that nothing is heard": func(s *subscription) { s.subscribe(); s.received(false) },
			"busy": func(s *subscription) {
				for range busyClaims {
					s.claimed(false)
				}
			},
		} {
			b := &tally{}
			s := subscription{notifier: b}
			wait(&s)
			sat := b.listens
			left := s.deaf()
			time.Sleep(left - time.Millisecond)
			s.subscribe()
			require.Equal(t, sat, b.listens, name)
			time.Sleep(2 * time.Millisecond) // it looks meanwhile
			require.Zero(t, s.deaf(), name)
			require.Greater(t, s.deaf(), time.Hour, "%s: once", name)
			s.subscribe()
			require.Equal(t, sat+1, b.listens, name)
		}
	})
}

func TestOneFullClaimAfterAnotherLeavesTheNotifier(t *testing.T) {
	b := &tally{}
	s := subscription{notifier: b}
	s.subscribe()
	require.False(t, s.claimed(true))
	require.False(t, s.claimed(false))
	require.False(t, s.claimed(true))
	require.True(t, s.claimed(true))
	require.Zero(t, b.stops)
	require.False(t, s.unsubscribe())
	require.Equal(t, 1, b.stops)
	require.Nil(t, s.heard)
}

func TestWhoLeavesOwesTheRingThatHeDidNotClaimFor(t *testing.T) {
	b := &tally{}
	s := subscription{notifier: b}
	s.subscribe()
	s.received(true)
	require.False(t, s.unsubscribe(), "the first value is no ring")
	for _, claim := range []func(){func() { s.vain() }, func() { s.claimed(false) }} {
		s.subscribe()
		b.ear <- struct{}{}
		s.answer()
		b.ear <- struct{}{}
		s.answer()
		claim()
		require.False(t, s.unsubscribe())
	}
	s.subscribe()
	s.received(true)
	s.received(true)
	require.True(t, s.unsubscribe())
	require.False(t, s.unsubscribe(), "once")
}

func TestWhoIsWokenForEachMessageLooksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		s := subscription{notifier: b}
		s.subscribe()
		time.Sleep(time.Second)
		s.looked(time.Hour)
		require.LessOrEqual(t, s.spare(time.Hour), time.Duration(0), "nothing was heard yet")
		s.received(true)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 900*time.Millisecond, s.spare(time.Hour))
		require.Equal(t, 200*time.Millisecond, s.spare(300*time.Millisecond), "each PollMax, if that is less")
		s.inProcess()
		require.Zero(t, s.spare(time.Hour), "what came from here may be due later")
		s.looked(150 * time.Millisecond)
		require.Equal(t, 150*time.Millisecond, s.spare(time.Hour), "what it saw to come")
		s.looked(-time.Hour)
		require.Negative(t, s.spare(time.Hour))
	})
}

func TestWhoClaimsOftenDoesNotSit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		s := subscription{notifier: b}
		claims := func(n int, each time.Duration) (enough bool) {
			for range n {
				time.Sleep(each)
				enough = s.claimed(false)
			}
			return enough
		}
		require.False(t, claims(15, time.Millisecond))
		require.True(t, claims(1, time.Millisecond))
		s.subscribe()
		require.Zero(t, b.listens)
		require.Equal(t, busyFor-15*time.Millisecond, s.deaf(), "then it tries again")
		time.Sleep(busyFor)
		s.subscribe()
		require.Equal(t, 1, b.listens)
		require.False(t, claims(100, 30*time.Millisecond))
	})
}

func TestWhoIsWokenInVainAgainAndAgainRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := subscription{notifier: &tally{}}
		s.subscribe()
		s.received(true)
		vain := func() time.Duration {
			s.received(true)
			require.True(t, s.vain())
			return s.rest()
		}
		for _, want := range []time.Duration{0, 0, 20, 40, 80, 100, 100} {
			require.Equal(t, want*time.Millisecond, vain())
		}
		time.Sleep(100 * time.Millisecond)
		require.Zero(t, s.rest(), "it hears again")
		s.received(true)
		s.claimed(false)
		require.Zero(t, vain(), "that was not in vain")
		vain()
		require.NotZero(t, vain())
		time.Sleep(2 * time.Second)
		require.Zero(t, vain(), "that was long ago")
	})
}
