package notify

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
	calls, messages atomic.Int64 // a timer might call
	listens, stops  int
	heard           chan struct{}
	slots           []int // of the last Listen
	last            atomic.Pointer[called]
}

// called is a call of Notify.
type called struct {
	queue    string
	messages int
	slots    []int
}

func (b *tally) Notify(queue string, messages int, slots []int) {
	b.calls.Add(1)
	b.messages.Add(int64(messages))
	b.last.Store(&called{queue, messages, slots})
}

func (b *tally) Listen(_ string, slots []int) (<-chan struct{}, func()) {
	b.listens++
	b.slots = slots
	b.heard = make(chan struct{}, 1)
	return b.heard, func() { b.stops++ }
}

func TestABurstNotifiesImmediatelyThenRarelyAndAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		r := Debouncer{Notifier: b}
		r.Notify(1, Slots{}, true)
		require.EqualValues(t, 1, b.calls.Load(), "the first immediately")
		for range 9 {
			time.Sleep(time.Millisecond)
			r.Notify(1, Slots{}, true)
		}
		require.EqualValues(t, 1, b.calls.Load())
		time.Sleep(Every)
		synctest.Wait()
		require.EqualValues(t, 2, b.calls.Load(), "again for the later messages, although no more follow")
		require.EqualValues(t, 10, b.messages.Load())
		time.Sleep(time.Second)
		r.Notify(1, Slots{}, true)
		r.Notify(1, Slots{}, true)
		r.Notify(1, Slots{}, false)
		require.EqualValues(t, 4, b.calls.Load(), "the last immediately")
		require.EqualValues(t, 13, b.messages.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 4, b.calls.Load(), "but not twice")
		r.Notify(1, Slots{}, true)
		r.Notify(1, Slots{}, true)
		r.Flush()
		require.EqualValues(t, 15, b.messages.Load())
	})
}

func TestNotificationsThatWaitNameTheSlotsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		d := Debouncer{Notifier: b, Queue: "public.orders", Ordered: true}
		in := func(slots ...int) (named Slots) {
			for _, slot := range slots {
				named.Add(slot)
			}
			return named
		}
		last := func() called { return *b.last.Load() }
		d.Notify(2, in(7, 3, 7), true)
		require.Equal(t, called{"public.orders", 2, []int{3, 7}}, last())
		d.Notify(1, in(5), true)
		d.Notify(2, in(1, 5), true)
		time.Sleep(Every)
		synctest.Wait()
		require.Equal(t, called{"public.orders", 3, []int{1, 5}}, last())
		d.Notify(1, in(5), true)
		d.Notify(0, AnySlot, false)
		require.Equal(t, called{"public.orders", 0, nil}, last())
		d.Notify(1, in(5), false)
		require.Equal(t, called{"public.orders", 1, []int{5}}, last(), "the earlier notification has no effect")
		var many []int
		for slot := range mostNamed {
			many = append(many, slot)
		}
		d.Notify(mostNamed, in(many...), false)
		require.Equal(t, many, last().slots)
		d.Notify(1, in(many...), true)
		d.Notify(1, in(mostNamed), false)
		require.Equal(t, called{"public.orders", 0, nil}, last(), "too many slots")
		plain := Debouncer{Notifier: b, Queue: "public.mail"}
		plain.Notify(3, Slots{}, false)
		require.Equal(t, called{"public.mail", 3, nil}, last())
		plain.Notify(3, Slots{}, true)
		plain.Notify(0, AnySlot, false)
		require.Equal(t, called{"public.mail", 0, nil}, last())
	})
}

func TestAConsumerWhoseSlotsMoveListensForTheNewOnes(t *testing.T) {
	b := &tally{}
	owned := []int{}
	s := Subscription{of: &Debouncer{Notifier: b}, owned: func() []int { return owned }}
	require.False(t, s.Follow(), "it does not listen")
	s.Subscribe()
	require.Equal(t, []int{}, b.slots, "it owns none")
	require.False(t, s.Follow())
	owned = []int{2, 5}
	require.True(t, s.Follow())
	require.Equal(t, []int{2, 5}, b.slots)
	require.Equal(t, []int{2, 1}, []int{b.listens, b.stops})
	require.False(t, s.Follow())
	s.Unsubscribe()
	owned = []int{2}
	require.False(t, s.Follow())
	plain := Subscription{of: &Debouncer{Notifier: b}}
	plain.Subscribe()
	require.Nil(t, b.slots)
	require.False(t, plain.Follow())
}

// leaver calls Goexit like a failing test, or panics.
type leaver struct{ panics bool }

func (b leaver) Notify(string, int, []int) { b.fail() }

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
		(&Debouncer{Notifier: b}).Notify(1, Slots{}, false)
		s := Subscription{of: &Debouncer{Notifier: b}}
		s.Subscribe()
		require.Nil(t, s.heard)
		require.False(t, s.Quiet())
		s.Unsubscribe()
	}
}

func TestAfterAClosedChannelItListensAgainLater(t *testing.T) {
	b := &tally{}
	s := Subscription{of: &Debouncer{Notifier: b}}
	s.Subscribe()
	s.Subscribe()
	require.Equal(t, 1, b.listens, "once")
	require.False(t, s.Quiet(), "nothing was received yet")
	require.True(t, s.Received(true))
	require.True(t, s.Quiet())
	b.heard <- struct{}{}
	require.False(t, s.Quiet(), "there is a notification")
	require.True(t, s.Received(false), "notifications might have been lost")
	require.Equal(t, 1, b.stops)
	s.Subscribe()
	require.Equal(t, 1, b.listens)
	require.LessOrEqual(t, s.MutedFor(), LookEvery)
	s.muted = 1 // long ago
	s.Subscribe()
	require.Equal(t, 2, b.listens)
	require.False(t, s.Received(false), "nothing was promised")
	require.Equal(t, 2, b.stops)
}

func TestAConsumerThatMayListenSinceItsLastLookListensBeforeItSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		s := Subscription{of: &Debouncer{Notifier: b}}
		require.Greater(t, s.MutedFor(), time.Hour, "it may listen now")
		s.Subscribe()
		s.Received(false)
		time.Sleep(LookEvery - time.Millisecond)
		s.Subscribe()
		require.Equal(t, 1, b.listens)
		require.Equal(t, time.Millisecond, s.MutedFor())
		time.Sleep(2 * time.Millisecond) // it polls in the meantime
		require.Zero(t, s.MutedFor())
		s.Subscribe()
		require.Equal(t, 2, b.listens)
		require.Greater(t, s.MutedFor(), time.Hour)
	})
}

func TestAConsumerThatStopsListeningPassesOnTheNotificationThatItDidNotClaimFor(t *testing.T) {
	b := &tally{}
	s := Subscription{of: &Debouncer{Notifier: b}}
	s.Subscribe()
	s.Received(true)
	require.False(t, s.Unsubscribe(), "the first value is no notification")
	for _, claim := range []func(){func() { s.ClaimedNone() }, s.Claimed} {
		s.Subscribe()
		b.heard <- struct{}{}
		s.Answer()
		b.heard <- struct{}{}
		s.Answer()
		claim()
		require.False(t, s.Unsubscribe())
	}
	s.Subscribe()
	s.Received(true)
	s.Received(true)
	require.True(t, s.Unsubscribe())
	require.False(t, s.Unsubscribe(), "once")
}

func TestAConsumerThatIsWokenForEachMessageLooksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &tally{}
		s := Subscription{of: &Debouncer{Notifier: b}}
		s.Subscribe()
		time.Sleep(time.Second)
		s.Looked(time.Hour)
		require.LessOrEqual(t, s.Spare(), time.Duration(0), "nothing was received yet")
		s.Received(true)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 900*time.Millisecond, s.Spare())
		s.InProcess()
		require.Negative(t, s.Spare(), "messages of this process might be due later")
		s.Looked(150 * time.Millisecond)
		require.Equal(t, 150*time.Millisecond, s.Spare(), "until the next message that the poll found")
		s.Looked(-time.Hour)
		require.Negative(t, s.Spare())
	})
}

func TestAConsumerThatIsWokenWithoutGettingAMessageBacksOff(t *testing.T) {
	s := Subscription{of: &Debouncer{Notifier: &tally{}}}
	s.Subscribe()
	s.Received(true)
	missed := func() time.Duration {
		s.Received(true)
		require.True(t, s.ClaimedNone())
		return s.BackoffFor()
	}
	for _, want := range []time.Duration{0, 0, 20, 40, 80, 80} {
		require.Equal(t, want*time.Millisecond, missed())
	}
	require.False(t, s.ClaimedNone(), "nothing has woken it")
	s.Received(true)
	s.Claimed()
	require.Zero(t, missed(), "it got a message")
}
