package claim

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	priorityNormal, priorityUrgent = 0, sqlbatch.PriorityUrgent
	low, normal, urgent            = 0, priorityNormal - sqlbatch.PriorityLow, priorityUrgent - sqlbatch.PriorityLow
	second                         = time.Second
)

// at is a row of a claim.
func at(p int8, due int64) table.Claimed {
	return table.Claimed{Row: table.Row{Priority: int8(p), Due: due}}
}

// rescaned returns a head after a first rescan that found these positions, and took no
// time.
func rescaned(heads sqlbatch.Heads) head {
	var f head
	f.begin(0, second)
	f.end(rescan{Rescan: table.Rescan{Known: true, Heads: heads}})
	return f
}

func TestAClaimRaisesTheHeadOfThePrioritiesThatItTookFrom(t *testing.T) {
	f := rescaned(headsAt(10, 20, 30, 40))
	f.claimed([]table.Claimed{at(priorityUrgent, 45), at(priorityNormal, 25), at(priorityUrgent, 41),
		at(priorityNormal, 12)}, 0)
	require.Equal(t, headsAt(10, 25, 30, 45), f.ask(0), "urgent messages do not hide low ones")
	f.claimed([]table.Claimed{at(priorityNormal, 22)}, 0)
	require.Equal(t, headsAt(10, 25, 30, 45), f.ask(0), "messages below do not move it")
}

func TestAReleaseLowersTheHead(t *testing.T) {
	f := rescaned(headsAt(10, 20, 30, 40))
	f.claimed([]table.Claimed{at(priorityNormal, 25)}, 0)
	back := notify.NoPlace
	back[normal].Due, back[urgent].Due = 15, 45
	f.lower(back)
	require.Equal(t, headsAt(10, 15, 30, 40), f.ask(0))

	f.begin(second, second)
	back[normal].Due = 5
	f.lower(back)
	f.end(rescan{Rescan: table.Rescan{Known: true, Heads: headsAt(60, 60, 60, 60)}})
	require.Equal(t, headsAt(60, 5, 60, 40), f.ask(0), "the rescan had not seen the messages")
	f.begin(2*second, second)
	f.end(rescan{Rescan: table.Rescan{Known: true, Heads: headsAt(60, 60, 60, 60)}})
	require.Equal(t, headsAt(60, 60, 60, 60), f.ask(0), "the next one did")
}

func TestARescanFindsMessagesBeforeTheHead(t *testing.T) {
	f := rescaned(headsAt(10, 20, 30, 40))
	ready := [4]bool{normal: true, urgent: true}
	f.claimed([]table.Claimed{at(priorityNormal, 100)}, 0)
	f.begin(second, second)
	f.claimed([]table.Claimed{at(priorityNormal, 110), at(priorityUrgent, 120)}, 0)
	require.True(t, f.end(rescan{Rescan: table.Rescan{Known: true, Ready: ready,
		Heads: headsAt(200, 50, 200, 60)}}))
	require.Equal(t, headsAt(200, 50, 200, 120), f.ask(0),
		"what it saw at or behind the head of its beginning has been claimed since, or is still to come")

	f.claimed([]table.Claimed{at(priorityNormal, 100)}, 0)
	f.begin(2*second, second)
	require.False(t, f.end(rescan{Rescan: table.Rescan{Known: true, Ready: ready,
		Heads: headsAt(300, 150, 300, 300)}}))
	require.Equal(t, headsAt(300, 150, 300, 300), f.ask(0), "other consumers have claimed the rest")

	before := f
	f.begin(3*second, second)
	require.False(t, f.end(rescan{}), "the queue is paused, or the rescan failed")
	require.Equal(t, before.starts, f.starts)
}

func TestTheHeadFollowsADatabasesClockThatGoesBack(t *testing.T) {
	f := rescaned(headsAt(1000, 1000, 1000, 1000))
	f.claimed([]table.Claimed{at(priorityNormal, 2000)}, 0)
	f.begin(second, second)
	f.claimed([]table.Claimed{at(priorityNormal, 2100)}, 0)
	require.False(t, f.end(rescan{Rescan: table.Rescan{Known: true, Heads: headsAt(500, 500, 500, 500)}}))
	require.Equal(t, headsAt(500, 500, 500, 500), f.ask(0))
}

func TestTheFirstRescanIsImmediateAndTheNextASecondLater(t *testing.T) {
	var f head
	require.True(t, f.isDue(0))
	f.begin(0, time.Minute)
	require.False(t, f.isDue(time.Hour), "one at a time")
	f.took = time.Second
	f.end(rescan{Rescan: table.Rescan{Known: true, Consumers: 1}, took: time.Millisecond})
	require.False(t, f.isDue(second-1))
	require.True(t, f.isDue(second))
	f.hurry()
	require.False(t, f.isDue(21*time.Millisecond-1), "a hurried rescan may not exceed its share either")
	require.True(t, f.isDue(21*time.Millisecond))
	f.begin(21*time.Millisecond, second)
	f.end(rescan{Rescan: table.Rescan{Known: true, Consumers: 1}, began: 21 * time.Millisecond})
	require.False(t, f.isDue(second), "it is not hurried any more")
	require.True(t, f.isDue(second+21*time.Millisecond))

	f = head{}
	f.begin(0, 100*time.Millisecond)
	f.end(rescan{})
	require.True(t, f.isDue(100*time.Millisecond), "a shorter PollEvery shortens the interval")
}

func TestAllConsumersTogetherSpendATwentiethOfTheTime(t *testing.T) {
	const took = 100 * time.Millisecond
	var f head
	twice := func(s rescan) {
		f.took, s.took = took, took
		f.begin(0, second)
		f.end(s)
	}
	twice(rescan{Rescan: table.Rescan{Known: true, Consumers: 4}})
	const rest = 4 * 20 * took
	require.False(t, f.isDue(took+rest-1))
	require.True(t, f.isDue(took+rest*5/4), "a quarter is random, so that consumers do not coincide")

	f = head{}
	twice(rescan{Rescan: table.Rescan{Known: true}})
	require.False(t, f.isDue(21*took-1), "no consumer is known yet")
	require.True(t, f.isDue(21*took))
}

func TestWhatARescanTookOnceIsNoPrice(t *testing.T) {
	var f head
	look := func(began, took time.Duration) {
		require.True(t, f.isDue(began))
		f.begin(began, second)
		f.end(rescan{Rescan: table.Rescan{Known: true, Consumers: 1}, began: began, took: took})
	}
	look(0, time.Minute)
	look(time.Minute, second/100) // the process had been stopped
	look(time.Minute+second, time.Hour)
	require.True(t, f.isDue(time.Hour+time.Minute+second+20*second/100), "it waited for a lock")
	look(2*time.Hour, 10*second)
	require.False(t, f.isDue(2*time.Hour+21*10*second-1), "twice counts: the lesser of both")
	require.True(t, f.isDue(2*time.Hour+21*10*second))
}

func TestOnceTheDatabaseAnswersAgainARescanIsDue(t *testing.T) {
	v := rescans{head: rescaned(sqlbatch.Heads{})}
	for range 2 {
		v.head.begin(0, second)
		v.head.end(rescan{Rescan: table.Rescan{Known: true}, took: 30 * second})
	}
	v.claimFailed(time.Millisecond)
	require.False(t, v.head.isDue(100*second), "an immediate error does not show how long a rescan takes")
	v.claimFailed(second)
	v.claimFailed(time.Millisecond)
	require.True(t, v.head.isDue(30*second), "they ran into the outage")
	v.head.begin(30*second, second)
	v.head.end(rescan{Rescan: table.Rescan{Known: true}, began: 30 * second, took: second})
	require.False(t, v.head.isDue(51*second-1), "once")
	require.True(t, v.head.isDue(51*second))
}

func TestAClaimThatComesLateReachesBackToWhatWasAboutToBeCommitted(t *testing.T) {
	margin := sqlbatch.HeadMargin.Milliseconds()
	f := rescaned(headsAt(100, 10_000, 10_000, 10_000))
	f.claimed([]table.Claimed{at(priorityNormal, 20_000)}, 10*second-second/100)
	soon := f.ask(10*second + sqlbatch.HeadMargin/4)
	require.EqualValues(t, 20_000, soon[normal].Due, "the claim itself reaches back")
	require.Equal(t, 10_000-margin, soon[urgent].Due, "nothing urgent was claimed since the rescan")
	f.claimed(nil, 10*second+sqlbatch.HeadMargin)
	require.Equal(t, headsAt(0, 20_000-margin, 10_000-margin, 10_000-margin), f.ask(10*second+sqlbatch.HeadMargin))

	f.begin(20*second, second)
	f.end(rescan{Rescan: table.Rescan{Known: true, Heads: headsAt(30_000, 30_000, 30_000, 30_000)}, began: 20 * second})
	require.EqualValues(t, 30_000, f.ask(20 * second)[normal].Due)
	require.EqualValues(t, 30_000-margin, f.ask(21 * second)[normal].Due)
}

func TestAnIdleConsumerWaitsForWhatTheRescanSawToCome(t *testing.T) {
	var f head
	f.begin(0, second)
	require.EqualValues(t, int64(math.MaxInt64), f.wait(0), "its result ends the pause")
	f.end(rescan{Rescan: table.Rescan{Known: true, Due: 5 * second}})
	require.Equal(t, 3*second, f.wait(2*second))
	require.Zero(t, f.wait(6*second))
	f.begin(6*second, second)
	f.end(rescan{Rescan: table.Rescan{Known: true, Due: second / 10}, began: 6 * second})
	require.Equal(t, second, f.wait(6*second), "no sooner than the next rescan may begin")
	f.begin(7*second, second)
	f.end(rescan{Rescan: table.Rescan{Known: true, Due: math.MaxInt64}, began: 7 * second})
	require.EqualValues(t, int64(math.MaxInt64), f.wait(7*second))
	f.took = second
	f.begin(8*second, second)
	f.end(rescan{Rescan: table.Rescan{Known: true}, began: 8 * second, took: second / 10})
	f.hurry()
	require.Equal(t, 2*second, f.wait(8*second+second/10), "as soon as its share allows")
}

// headsAt returns the heads with these times, from the lowest priority up.
func headsAt(due ...int64) (heads sqlbatch.Heads) {
	for i := range due {
		heads[i].Due = due[i]
	}
	return heads
}
