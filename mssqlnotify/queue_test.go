package mssqlnotify

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// The plans of a Notifier without its goroutine, in a bubble, where time passes only during sleeps.

type planned struct {
	*testing.T
	*Notifier
}

func planning(t *testing.T, test func(*planned)) {
	synctest.Test(t, func(t *testing.T) {
		b := New(nil, Config{Every: 5 * time.Millisecond})
		b.runs = true // the goroutine is not started
		test(&planned{t, b})
		require.NoError(t, b.Close())
	})
}

// request waits for the next request and returns it.
func (p *planned) request() request {
	for {
		r, _, wait := p.plan(time.Now())
		if len(r.queues) > 0 {
			return r
		}
		time.Sleep(wait) // of the bubble
	}
}

// answer returns the same answer for each queue of a request.
func (p *planned) answer(r request, a answer) {
	answers := make([]answer, len(r.queues))
	for i := range answers {
		if r.watched[i].Look {
			answers[i] = a
		}
	}
	p.answered(r, answers, time.Now())
}

// live makes n consumers listen on a live queue.
func (p *planned) live(name string, n int) (woken []<-chan struct{}, stops []func()) {
	for range n {
		w, stop := p.Listen(name, nil)
		woken, stops = append(woken, w), append(stops, stop)
	}
	r := p.request()
	require.Len(p, r.queues, 1)
	require.Zero(p, r.atMost, "one read, which returns at once whether there is a lock")
	for _, w := range woken {
		require.Empty(p, w, "nothing is known yet")
	}
	p.answer(r, answer{locked: true, head: 1})
	for _, w := range woken {
		require.True(p, isWoken(w), "the first value")
	}
	return woken, stops
}

func isWoken(w <-chan struct{}) bool {
	select {
	case _, open := <-w:
		return open
	default:
		return false
	}
}

func TestThePauseAfterAFindDoublesWhileTheMessageStays(t *testing.T) {
	planning(t, func(p *planned) {
		woken, _ := p.live("dbo.a", 1)
		rests := func(head int64) time.Duration {
			r := p.request()
			require.Equal(p, longest, r.atMost)
			p.answer(r, answer{locked: true, found: true, head: head})
			require.True(p, isWoken(woken[0]))
			began := time.Now()
			p.request()
			return time.Since(began)
		}
		for _, want := range []time.Duration{20, 40, 80, 160, 250, 250} {
			require.Equal(p, want*time.Millisecond, rests(2), "the message was not claimed")
		}
		require.Equal(p, 20*time.Millisecond, rests(3), "another message")
		require.Equal(p, 40*time.Millisecond, rests(3))
		r := p.request()
		require.EqualValues(p, 3, r.watched[0].Head)
		p.answer(r, answer{locked: true, head: 4})
		require.False(p, isWoken(woken[0]))
		require.EqualValues(p, 4, p.request().watched[0].Head)
		require.Equal(p, 20*time.Millisecond, rests(3), "there was nothing in between")
	})
}

func TestARequestForOtherQueuesEndsWithTheRestOfAQueue(t *testing.T) {
	planning(t, func(p *planned) {
		p.live("dbo.a", 1)
		p.live("dbo.b", 1)
		r := p.request()
		require.Len(p, r.queues, 2)
		p.answered(r, []answer{{locked: true, found: true, head: 2}, {locked: true, head: 2}}, time.Now())
		r = p.request()
		require.Equal(p, []bool{false, true}, []bool{r.watched[0].Look, r.watched[1].Look})
		require.Equal(p, 20*time.Millisecond, r.atMost)
		p.answer(r, answer{locked: true, head: 3})
		time.Sleep(20 * time.Millisecond)
		r = p.request()
		require.Equal(p, []bool{true, true}, []bool{r.watched[0].Look, r.watched[1].Look})
		require.Equal(p, longest, r.atMost)
	})
}

func TestConsumersAreWokenInTurn(t *testing.T) {
	planning(t, func(p *planned) {
		woken, stops := p.live("dbo.a", 3)
		var turns []int
		find := func(head int64) { p.answer(p.request(), answer{locked: true, found: true, head: head}) }
		for n := range 6 {
			find(int64(n + 2))
			for i, w := range woken {
				if isWoken(w) {
					turns = append(turns, i)
				}
			}
		}
		require.Equal(p, []int{1, 2, 0, 1, 2, 0}, turns, "one per message")
		find(10)
		find(11)
		find(12)
		for _, w := range woken {
			require.True(p, isWoken(w), "each has a value before one has another")
		}
		find(13)
		require.Len(p, woken[1], 1)
		stops[1]()
		require.True(p, isWoken(woken[0]) || isWoken(woken[2]), "its value is for another consumer")
	})
}

func TestALostLockEndsListeningAndAMissingOneDoesNot(t *testing.T) {
	planning(t, func(p *planned) {
		w, stop := p.Listen("dbo.a", nil)
		for i := range 5 {
			r := p.request()
			require.Zero(p, r.atMost)
			p.answer(r, answer{})
			began := time.Now()
			p.request()
			pause := retries[min(i, len(retries)-1)]
			require.InDelta(p, pause, time.Since(began), float64(pause)/4)
		}
		require.Empty(p, w)
		began := time.Now()
		_, another := p.Listen("dbo.a", nil)
		defer another()
		p.request()
		require.Less(p, time.Since(began), time.Second, "because of the new consumer")
		p.answer(p.request(), answer{locked: true})
		require.True(p, isWoken(w))
		p.answer(p.request(), answer{})
		_, open := <-w
		require.False(p, open, "it polls on its own")
		stop()
	})
}

// The first consumer that listens again ignores earlier finds.
func TestAConsumerThatListensAgainWaitsForALock(t *testing.T) {
	planning(t, func(p *planned) {
		_, stops := p.live("dbo.a", 1)
		p.answer(p.request(), answer{locked: true, head: 7})
		during := p.request()
		stops[0]()
		_, listens, _ := p.plan(time.Now())
		require.False(p, listens)
		p.answer(during, answer{locked: true, head: 8})
		w, stop := p.Listen("dbo.a", nil)
		require.Empty(p, w)
		r := p.request()
		require.Zero(p, r.atMost)
		require.EqualValues(p, 8, r.watched[0].Head)
		p.answer(r, answer{locked: true, head: 9})
		require.True(p, isWoken(w))
		another, stopAnother := p.Listen("dbo.a", nil)
		require.True(p, isWoken(another), "the queue has its lock")
		stopAnother()
		stop()

		_, _, wait := p.plan(time.Now())
		require.Equal(p, unused, wait)
		time.Sleep(unused)
		p.plan(time.Now())
		require.Empty(p, p.queues, "it is forgotten")
	})
}

// A queue whose consumers are briefly busy stays in the text, so that the plan is reused.
func TestTheTextStaysWhileConsumersListenAndStop(t *testing.T) {
	planning(t, func(p *planned) {
		_, stops := p.live("dbo.b", 1)
		p.live("other.a.b", 1)
		stops[0]()
		r := p.request()
		require.Equal(p, []sqlbatch.Names{{Schema: "dbo", Queue: "b"}, {Schema: "other.a", Queue: "b"}}, []sqlbatch.Names{r.watched[0].Names, r.watched[1].Names})
		require.Equal(p, []bool{false, true}, []bool{r.watched[0].Look, r.watched[1].Look})
	})
}

func TestARequestHasAtMostTheQueuesOfItsStatement(t *testing.T) {
	planning(t, func(p *planned) {
		for i := range sqlbatch.MostWatched {
			p.live(fmt.Sprintf("dbo.q%02d", i), 1)
		}
		w, stop := p.Listen("dbo.a", nil)
		r := p.request()
		require.Len(p, r.queues, sqlbatch.MostWatched)
		require.NotEqual(p, "a", r.queues[0].names.Queue)
		require.Empty(p, w, "it polls")
		stop()
	})
}
