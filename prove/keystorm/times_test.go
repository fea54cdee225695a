package keystorm_test

import (
	"flag"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/kills"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
)

var stormTimes = flag.Bool("storm.times", false, "measure how soon slots change hands (TestSlotsMoveWithinTheirTimes)")

// TestSlotsMoveWithinTheirTimes measures, over processes, how soon the slots are balanced after a process has joined,
// left, or was killed, and for how long a slot has no owner while some join and leave each second. Its result depends
// on the machine, so it runs only on request:
//
//	go test ./prove/keystorm -v -run SlotsMove -storm.times -storm.lease 5s
func TestSlotsMoveWithinTheirTimes(t *testing.T) {
	if !*stormTimes {
		t.Skip("a measurement: run it with -storm.times")
	}
	for _, e := range []testdb.Engine{testdb.SQLite, testdb.Postgres, testdb.EmulatorSocket} {
		t.Run(e.Name, func(t *testing.T) { handOvers(t, e) })
	}
}

// The documented limits.
const (
	joinWithin  = 3 * time.Second
	leaveWithin = 500 * time.Millisecond
	killWithin  = 2 * time.Second // plus a lease
)

func handOvers(t *testing.T, e testdb.Engine) {
	s := newStorm(t, false, 1, e)
	s.task.Rate = 5
	var joins, leaves, killed []time.Duration
	join := func(place int) {
		require.NoError(t, s.start(place))
		s.run("it joins", look, func() bool { return s.history.Reported(s.Places[place].Number, kills.Started) })
		joins = append(joins, s.balanced())
	}
	for place := range 4 {
		join(place)
	}
	for i := range 4 {
		former := s.Places[i]
		s.Leave(former)
		leaves = append(leaves, s.balanced())
		<-former.Ended()
		join(i)
		require.NoError(t, s.Kill(s.Places[i]))
		killed = append(killed, s.balanced())
		join(i)
	}
	t.Logf("balanced after one joined: %s; all taken after one left: %s; after one was killed (LeaseFor %v): %s",
		kills.Quantiles(joins), kills.Quantiles(leaves), *stormLease, kills.Quantiles(killed))
	s.comeAndGo(20)
	s.settle()
	v := checkHistory(s.history, false)
	require.True(t, v.OK(), v.String())
	require.Less(t, slices.Max(joins), joinWithin)
	require.Less(t, slices.Max(leaves), leaveWithin)
	require.Less(t, slices.Max(killed), killWithin+*stormLease)
}

// owners returns the numbers of the processes that own the slots, -1 for a slot without an owner.
func (s *trial) owners() []int {
	all, err := testdb.Admin(s.queue.shards[0]).Slots(s.t.Context())
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

// balanced waits until the running processes own all slots, each at most its share, and returns how long that took.
func (s *trial) balanced() time.Duration {
	began := time.Now()
	s.run("the slots are balanced", look, func() bool {
		counts := map[int]int{}
		for _, n := range s.owners() {
			counts[n]++
		}
		there, running := 0, s.Running()
		for _, p := range running {
			n := counts[p.Number]
			if there += n; n > (slots+len(running)-1)/len(running) {
				return false
			}
		}
		return there == slots
	})
	return time.Since(began)
}

// comeAndGo makes one worker leave and join again each second, the given number of times, while three others stay.
func (s *trial) comeAndGo(times int) {
	began, before := time.Now(), len(s.history.Latencies())
	var free []time.Duration // for how long slots had no owner, each time
	since := make([]time.Time, slots)
	last := s.owners()
	moves, turns := 0, 0
	s.Every(0, time.Second, func() error {
		turns++
		if p := s.Places[3]; p != nil {
			s.Leave(p)
			s.refill(p, time.Second/2)
		}
		return nil
	})
	s.run("all came and went", look, func() bool {
		now := time.Now()
		for slot, owner := range s.owners() {
			alive := slices.ContainsFunc(s.Places, func(p *crew.Process) bool { return p != nil && p.Number == owner })
			switch {
			case !alive && since[slot].IsZero():
				since[slot] = now
			case alive && !since[slot].IsZero():
				free = append(free, now.Sub(since[slot]))
				since[slot] = time.Time{}
			}
			if alive && owner != last[slot] {
				moves++
				last[slot] = owner
			}
		}
		return turns == times
	})
	s.t.Logf("one of four leaves and joins again each second, %d times: %.1f slots move per second; without an owner: %s; sent to handled: %s",
		times, float64(moves)/time.Since(began).Seconds(), kills.Quantiles(free), kills.Quantiles(s.history.Latencies()[before:]))
}
