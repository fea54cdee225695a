package chanq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// newWatchLine is a queue with n consumers that listen, and are awake.
func newWatchLine(n int) (*watchLine, []<-chan struct{}) {
	w := &watcher{work: make(chan struct{}, 1)}
	l := &watchLine{}
	var heard []<-chan struct{}
	for range n {
		e := &watchEar{watcher: w, line: l, every: 5 * time.Millisecond}
		l.ears = append(l.ears, e)
		ch, _ := e.Listen("")
		heard = append(heard, ch)
	}
	w.lines = []*watchLine{l}
	return l, heard
}

func rung(ch <-chan struct{}) bool {
	select {
	case _, open := <-ch:
		return open
	default:
		return false
	}
}

func TestAWatchLooksForAChairAtOnceAndThenForWhoeverSleeps(t *testing.T) {
	l, heard := newWatchLine(1)
	e, now := l.ears[0], monotonic()
	does := func(want watchDuty, why string) {
		t.Helper()
		duty, _ := l.duty(now)
		require.Equal(t, want, duty, why)
	}
	does(watchNone, "it has not said from where")
	e.arm(sqlbatch.Floors{})
	does(watchSit, "it sleeps")
	l.answered(watchAnswer{seated: true}, now)
	require.True(t, rung(heard[0]), "it is heard from here on")
	does(watchLook, "there is a chair")

	l.answered(watchAnswer{seated: true, found: true}, now)
	require.True(t, rung(heard[0]))
	does(watchKeep, "it will be back soon, and what comes meanwhile is for the next request")
	l.answered(watchAnswer{seated: true, found: true}, now)
	require.False(t, rung(heard[0]), "it is awake, and claims")
	does(watchMissed, "until it has claimed what is there")
	e.claimed(true)
	e.arm(sqlbatch.Floors{})
	does(watchLook, "it sleeps again")
	e.disarm()
	does(watchKeep, "it is awake by itself")
}

func TestAWatchThatFindsInVainRestsForLongerEachTime(t *testing.T) {
	l, heard := newWatchLine(1)
	e := l.ears[0]
	l.seated = true
	var rests []time.Duration
	for range 12 {
		now := monotonic() + time.Hour // after any rest
		e.arm(sqlbatch.Floors{})
		l.answered(watchAnswer{seated: true, found: true}, now)
		require.True(t, rung(heard[0]))
		e.claimed(false)
		e.arm(sqlbatch.Floors{})
		duty, left := l.duty(monotonic())
		require.Equal(t, watchRest, duty)
		rests = append(rests, left)
		l.answered(watchAnswer{seated: true, found: true}, monotonic())
		require.False(t, rung(heard[0]))
	}
	require.InDelta(t, 10*time.Millisecond, rests[0], float64(5*time.Millisecond))
	require.InDelta(t, 20*time.Millisecond, rests[1], float64(5*time.Millisecond))
	require.InDelta(t, mostVain, rests[len(rests)-1], float64(5*time.Millisecond))
	e.claimed(true)
	duty, _ := l.duty(monotonic())
	require.Equal(t, watchLook, duty, "it is not in vain any more")
}

func TestALostChairEndsTheListeningAndAMissingOneDoesNot(t *testing.T) {
	l, heard := newWatchLine(2)
	now := monotonic()
	for _, e := range l.ears {
		e.arm(sqlbatch.Floors{})
	}
	l.answered(watchAnswer{}, now)
	for i := range watchAgain {
		duty, left := l.duty(now)
		require.Equal(t, watchNone, duty)
		require.InDelta(t, watchAgain[i], left, float64(watchAgain[i])/2)
		now += left
		duty, _ = l.duty(now)
		require.Equal(t, watchSit, duty)
		l.answered(watchAnswer{}, now)
	}
	require.False(t, rung(heard[0]))
	l.answered(watchAnswer{seated: true}, now)
	require.True(t, rung(heard[0]))
	require.True(t, rung(heard[1]))
	l.answered(watchAnswer{}, now)
	for _, ch := range heard {
		_, open := <-ch
		require.False(t, open, "they have to look by themselves")
	}
}

func TestAWatchRingsConsumersInTurn(t *testing.T) {
	l, heard := newWatchLine(3)
	l.seated = true
	var turns []int
	for range 6 {
		for _, e := range l.ears {
			e.arm(sqlbatch.Floors{})
		}
		l.answered(watchAnswer{seated: true, found: true}, monotonic())
		for i, ch := range heard {
			if rung(ch) {
				turns = append(turns, i)
			}
		}
	}
	require.Equal(t, []int{1, 2, 0, 1, 2, 0}, turns, "one a message")
}

func TestARequestIsOfTheQueuesThatHaveConsumersAndLooksAtThoseThatSleep(t *testing.T) {
	a, _ := newWatchLine(1)
	b, _ := newWatchLine(1)
	w := a.ears[0].watcher
	b.ears[0].watcher = w
	w.lines = append(w.lines, b)
	a.seated, b.seated = true, true
	a.ears[0].placed, b.ears[0].placed = true, true
	require.False(t, w.plan(monotonic()).looks, "both are awake")
	a.ears[0].arm(sqlbatch.Floors{5, 6, 7, 8})
	b.ears[0].placed = false
	r := w.plan(monotonic())
	require.Equal(t, []bool{true, false}, []bool{r.watched[0].Look, r.watched[1].Look})
	require.Equal(t, sqlbatch.Floors{5, 6, 7, 8}, r.watched[0].Floors)
	require.Equal(t, watchFor, r.atMost)

	b.seated = true
	b.ears[0].arm(sqlbatch.Floors{})
	b.answered(watchAnswer{seated: true, found: true}, monotonic())
	require.True(t, w.plan(monotonic()).watched[1].Look, "beside the other")
	b.answered(watchAnswer{seated: true, found: true}, monotonic())
	r = w.plan(monotonic())
	require.Equal(t, []bool{true, false}, []bool{r.watched[0].Look, r.watched[1].Look})
	require.Equal(t, watchBriefly, r.atMost, "its consumer is soon back")

	b.seated = false
	b.ears[0].arm(sqlbatch.Floors{})
	b.tryAt = 0
	r = w.plan(monotonic())
	require.True(t, r.watched[1].Look)
	require.Zero(t, r.atMost, "to find a chair takes a look")
	require.Equal(t, 5*time.Millisecond, r.every)
}

func TestRequestsGetLongerWhileNothingComesAndNobody(t *testing.T) {
	a, _ := newWatchLine(1)
	w := a.ears[0].watcher
	a.seated = true
	quiet := func() (d time.Duration) {
		r := w.plan(monotonic())
		w.answered(r, []watchAnswer{{seated: true}})
		return r.atMost
	}
	a.ears[0].arm(sqlbatch.Floors{})
	for _, want := range []time.Duration{1, 2, 4, 8, 8} {
		require.Equal(t, want*time.Second, quiet())
	}
	b, _ := newWatchLine(1)
	b.ears[0].watcher = w
	w.lines = append(w.lines, b)
	require.Equal(t, watchFor, w.plan(monotonic()).atMost, "it may come any time")
	w.lines = w.lines[:1]
	w.answered(w.plan(monotonic()), []watchAnswer{{seated: true, found: true}})
	a.ears[0].arm(sqlbatch.Floors{})
	require.Equal(t, watchFor, quiet())
}

func TestARequestIsOfNoMoreQueuesThanItsStatementTakes(t *testing.T) {
	first, _ := newWatchLine(1)
	w := first.ears[0].watcher
	var last <-chan struct{}
	for range sqlbatch.MostWatched {
		l, heard := newWatchLine(1)
		l.ears[0].watcher, l.seated, last = w, true, heard[0]
		w.lines = append(w.lines, l)
	}
	require.Len(t, w.plan(monotonic()).watched, sqlbatch.MostWatched)
	_, open := <-last
	require.False(t, open, "it polls")
}
