package keystorm_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
)

var stormTimes = flag.Bool("storm.times", false, "measure how soon slots change hands (TestHandOvers)")

// TestHandOvers measures, over processes, how soon the slots are where they should be after
// one has joined, left, or was killed, and for how long a slot is nobody's while some come and
// go each second. Its verdict hangs on the machine, so it runs only where it is asked for:
//
//	go test ./prove/keystorm -v -run HandOvers -storm.times -storm.lease 5s
func TestHandOvers(t *testing.T) {
	if !*stormTimes {
		t.Skip("a measurement: -storm.times")
	}
	for _, e := range []testdb.Engine{testdb.SQLite, testdb.Postgres, testdb.StandIn} {
		t.Run(e.Name, func(t *testing.T) { handOvers(t, e) })
	}
}

// What is promised.
const (
	joinWithin  = 3 * time.Second
	leaveWithin = 500 * time.Millisecond
	killWithin  = 2 * time.Second // and a lease
)

func handOvers(t *testing.T, e testdb.Engine) {
	s := newStorm(t, false, 1, e)
	s.task.Rate = 5
	var joins, leaves, kills []time.Duration
	join := func(place int) {
		require.NoError(t, s.start(place))
		require.NoError(t, s.await(t.Context(), s.places[place], s.places[place].joined, "join"))
		joins = append(joins, s.balanced())
	}
	for place := range 4 {
		join(place)
	}
	for i := range 4 {
		former := s.leave(i)
		leaves = append(leaves, s.balanced())
		<-former.Ended()
		join(i)
		_, err := s.kill(i)
		require.NoError(t, err)
		kills = append(kills, s.balanced())
		join(i)
	}
	t.Logf("balanced after one joined: %s; all taken after one left: %s; after one was killed (LeaseFor %v): %s", quantiles(joins), quantiles(leaves), *stormLease, quantiles(kills))
	s.comeAndGo(20)
	s.settle()
	v, _ := s.history.judge(false)
	require.True(t, v.OK(), v.String())
	require.Less(t, slices.Max(joins), joinWithin)
	require.Less(t, slices.Max(leaves), leaveWithin)
	require.Less(t, slices.Max(kills), killWithin+*stormLease)
}

// owners are the numbers of the processes that have the slots, -1 where one is nobody's.
func (s *storm) owners() []int {
	all, err := s.queue.Slots(s.t.Context())
	require.NoError(s.t, err)
	owners := make([]int, len(all))
	for i, slot := range all {
		owners[i] = -1
		if slot.Owner != "" {
			owners[i], err = strconv.Atoi(slot.Owner)
			require.NoError(s.t, err)
		}
	}
	return owners
}

// look is the time between two looks at the slots.
const look = 10 * time.Millisecond

// balanced waits until those who are there have all slots, each its share at most, and returns how
// long that took.
func (s *storm) balanced() time.Duration {
	began := time.Now()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for ; ; <-tick.C {
		counts := map[int]int{}
		for _, n := range s.owners() {
			counts[n]++
		}
		there, fair := 0, true
		living := s.living()
		for _, place := range living {
			n := counts[s.places[place].number]
			there += n
			fair = fair && n <= (slots+len(living)-1)/len(living)
		}
		took := time.Since(began)
		if fair && there == slots {
			return took
		}
		require.Less(s.t, took, calm, fmt.Sprint("the slots are not balanced: ", counts))
	}
}

// comeAndGo has one worker leave and come again each second, so many times, beside three that
// stay.
func (s *storm) comeAndGo(times int) {
	began := time.Now()
	s.mu.Lock()
	s.history.latencies = nil
	s.mu.Unlock()
	var free []time.Duration // for how long slots were nobody's, each time
	since := make([]time.Time, slots)
	before := s.owners()
	moves := 0
	tick := time.NewTicker(look)
	defer tick.Stop()
	turns := 0
	next := began
	for ; turns < times; <-tick.C {
		now := time.Now()
		s.turn(now)
		if now.After(next) {
			next = next.Add(time.Second)
			turns++
			if s.places[3] != nil {
				former := s.leave(3)
				s.empty = append(s.empty, filling{now.Add(time.Second / 2), former})
			}
		}
		owners := s.owners()
		for slot, owner := range owners {
			alive := slices.ContainsFunc(s.places, func(p *process) bool { return p != nil && p.number == owner })
			switch {
			case !alive && since[slot].IsZero():
				since[slot] = now
			case alive && !since[slot].IsZero():
				free = append(free, now.Sub(since[slot]))
				since[slot] = time.Time{}
			}
			if alive && owner != before[slot] {
				moves++
				before[slot] = owner
			}
		}
	}
	_, _, latencies := s.took()
	s.t.Logf("one of four leaves and comes again each second, %d times: %.1f slots change hands a second; nobody's: %s; sent to handled: %s",
		times, float64(moves)/time.Since(began).Seconds(), quantiles(free), quantiles(latencies))
}
