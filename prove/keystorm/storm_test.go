// Package keystorm is tests alone: processes that send to an ordered queue and handle what
// comes of it, while they are killed, stopped for twice as long as a lease, and come and go.
// What every process told is held against what chanq promises of the order of keys
// (prove/keyorder).
//
// The test's process is the judge; the workers are the test's program as other processes.
// Each tells on its standard output what it is going to do before it does it, and what came
// of it. Every place of a worker has keys of its own, whose numbers go on where those of the
// former worker end, so a key's sends follow one after another whatever happens.
//
// The tests are short; to go on for longer, and with as many kills as one likes:
//
//	go test ./prove/keystorm -v -timeout 20m -run Storm/postgres -storm.for 10m -storm.kills 100
package keystorm_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

const workerPart = "key storm"

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{workerPart: child.Does(work)})
	flag.Parse()
	goleak.VerifyTestMain(m)
}

var (
	stormFor   = flag.Duration("storm.for", testdb.Of(2*time.Second, 8*time.Second), "how long workers send")
	stormKills = flag.Int("storm.kills", testdb.Of(2, 8), "workers that are killed meanwhile")
	stormLease = flag.Duration("storm.lease", 1500*time.Millisecond, "LeaseFor; workers are stopped for twice as long")
	stormRate  = flag.Float64("storm.rate", 15, "sends a second, of each of the eight workers")
	// One that needs nothing, by default.
	stormShards = flag.String("storm.shards", "sqlite,stand-in,sqlite", "comma-separated: the engines of a queue over several places")
	stormHolds  = flag.Bool("storm.holds", false, "dead messages keep their keys closed, and are redriven")
	stormSeed   = flag.Uint64("storm.seed", 0, "of what happens to whom; 0: another one each time")
)

// engines by name.
var engines = map[string]testdb.Engine{
	testdb.SQLite.Name: testdb.SQLite, testdb.Postgres.Name: testdb.Postgres,
	testdb.StandIn.Name: testdb.StandIn, testdb.StandInVersions.Name: testdb.StandInVersions,
}

func TestStorm(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.SQLite, testdb.Postgres, testdb.StandIn, testdb.StandInVersions} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			weather(t, *stormHolds, e)
		})
	}
	t.Run("shards", func(t *testing.T) {
		t.Parallel()
		testdb.Long(t)
		var shards []testdb.Engine
		for name := range strings.SplitSeq(*stormShards, ",") {
			e, known := engines[name]
			require.True(t, known, name)
			shards = append(shards, e)
		}
		weather(t, *stormHolds, shards...)
	})
}

const (
	workers = 8
	slots   = 16
	keys    = 12 // of each worker
	// calm is how long the rest of the queue may take.
	calm = 3 * time.Minute
)

// storm is one run.
type storm struct {
	*crew
	t      *testing.T
	queue  *chanq.Queue[string]
	shards []chanq.Shard
	random *rand.Rand
	holds  bool

	kills, freezes, leaves int
	thaws                  []thawing
	empty                  []filling // places
}

type thawing struct {
	at time.Time
	do func() error
}

type filling struct {
	at     time.Time
	former *process // whose place it was, which must have ended
}

func weather(t *testing.T, holds bool, where ...testdb.Engine) {
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-storm.seed %d", seed)
	s := newStorm(t, holds, seed, where...)
	began := time.Now()
	end := s.disturb()
	defer end()
	s.blow(*stormFor, *stormKills)
	s.settle()
	v, stale := s.history.judge(holds)
	messages, deliveries, latencies := s.took()
	t.Logf("%v: %d workers, %d killed, %d stopped for %v, %d left and came again; %d messages, %d deliveries (%d of leases that had run out); %d ended, %d given back, %d lost, %d unknown; sent to handled: %s",
		time.Since(began).Round(time.Second/10), len(s.all), s.kills, s.freezes, 2**stormLease, s.leaves, messages, deliveries, stale,
		s.history.ends, s.history.returns, s.history.losses, s.history.unknowns, quantiles(latencies))
	t.Log(v)
	for _, fault := range slices.Concat(v.Inversions, v.Overlaps, v.Lost, v.Ghosts)[:min(3, v.Faults())] {
		key, _, _ := strings.Cut(fault, ": ")
		t.Log(fault, s.history.story(key))
	}
	require.True(t, v.OK(), v.String())
	require.Empty(t, s.history.faults)
	// A storm that hits nobody at work would prove nothing.
	require.Equal(t, *stormKills, s.kills)
	require.Positive(t, v.Repeated)
}

// newStorm makes the queue, in one database or over several, and a crew that is not there yet.
func newStorm(t *testing.T, holds bool, seed uint64, where ...testdb.Engine) *storm {
	cfg := config(slots, holds)
	var databases []database
	var shards []chanq.Shard
	for _, e := range where {
		if e.Name != testdb.SQLite.Name {
			e.Require(t)
		} else if testing.Short() {
			t.Skip("SKIPPED: -short kills no process")
		}
		d := database{e.Name, e.Create(t)}
		shard, end, err := d.open()
		require.NoError(t, err)
		defer end()
		databases, shards = append(databases, d), append(shards, shard)
	}
	if len(shards) == 1 {
		require.NoError(t, chanq.Migrate(t.Context(), shards[0].DB, queueName, cfg))
	} else {
		require.NoError(t, chanq.MigrateShards(t.Context(), shards, queueName, cfg))
	}
	queue, opened, end, err := open(t.Context(), databases, cfg)
	require.NoError(t, err)
	t.Cleanup(end)
	c := newCrew(task{
		Databases: databases, Keys: keys, Rate: *stormRate, LeaseFor: *stormLease, Slots: slots, Holds: holds,
		Work: 20 * time.Millisecond, Seed: seed,
	}, workers)
	t.Cleanup(c.abandon)
	return &storm{crew: c, t: t, queue: queue, shards: opened, random: rand.New(rand.NewPCG(seed, 2)), holds: holds}
}

// blow fills the places, and then kills, stops, and has workers leave and come again, until
// the time is over and so many are killed.
func (s *storm) blow(length time.Duration, kills int) {
	for i := range s.places {
		require.NoError(s.t, s.start(i))
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	killEvery := length / time.Duration(kills+1)
	freezeEvery, leaveEvery := max(length/20, 3**stormLease/2), max(length/200, *stormLease/2)
	kill, freeze, leave := begin.Add(killEvery), begin.Add(freezeEvery/2), begin.Add(leaveEvery)
	for ; time.Since(begin) < length || s.kills < kills; <-tick.C {
		now := time.Now()
		s.turn(now)
		switch {
		case now.After(kill) && s.kills < kills:
			kill = now.Add(killEvery/2 + time.Duration(s.random.Int64N(int64(killEvery))))
			if time.Since(begin) > length {
				kill = now
			}
			s.killOne(now)
		case now.After(freeze):
			freeze = now.Add(freezeEvery)
			s.freezeOne(now)
		case now.After(leave):
			leave = now.Add(leaveEvery)
			s.leaveOne(now)
		}
	}
}

// turn does what is due: places are filled, frozen workers go on, dead messages too.
func (s *storm) turn(now time.Time) {
	select {
	case err := <-s.died:
		require.NoError(s.t, err)
	default:
	}
	s.thaws = slices.DeleteFunc(s.thaws, func(t thawing) bool {
		if now.Before(t.at) {
			return false
		}
		require.NoError(s.t, t.do())
		return true
	})
	s.empty = slices.DeleteFunc(s.empty, func(f filling) bool {
		select {
		case <-f.former.Ended():
		default:
			return false
		}
		if now.Before(f.at) {
			return false
		}
		require.NoError(s.t, s.start(f.former.place))
		return true
	})
	if s.holds && s.random.IntN(20) == 0 {
		_, _ = s.queue.Redrive(s.t.Context(), 1000) // again soon, if a process stopped with the database locked
	}
}

// one is a living worker's place, any; there is none if few live.
func (s *storm) one() (place int, any bool) {
	living := s.living()
	if len(living) < 3 {
		return 0, false
	}
	return living[s.random.IntN(len(living))], true
}

// vacant has the place of a worker filled after a while.
func (s *storm) vacant(former *process, now time.Time) {
	s.empty = append(s.empty, filling{now.Add(time.Duration(s.random.Int64N(int64(*stormLease)))), former})
}

func (s *storm) killOne(now time.Time) {
	place, any := s.one()
	if !any {
		return
	}
	former, err := s.kill(place)
	require.NoError(s.t, err)
	s.kills++
	s.vacant(former, now)
}

func (s *storm) leaveOne(now time.Time) {
	place, any := s.one()
	if !any {
		return
	}
	s.leaves++
	s.vacant(s.leave(place), now)
}

func (s *storm) freezeOne(now time.Time) {
	place, any := s.one()
	if !any {
		return
	}
	thaw, err := s.freeze(place)
	if err != nil {
		s.t.Log(err) // not here
		return
	}
	s.freezes++
	s.thaws = append(s.thaws, thawing{now.Add(2 * *stormLease), thaw})
}

// settle lets everybody work until nothing is left, and leave.
func (s *storm) settle() {
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), calm, errTooLong)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; len(s.thaws)+len(s.empty) > 0; <-tick.C {
		s.turn(time.Now())
		require.NoError(s.t, ctx.Err(), "not all places are filled")
	}
	require.NoError(s.t, s.drain(ctx))
	for ; ; <-tick.C {
		s.turn(time.Now())
		stats, err := s.queue.Stats(s.t.Context())
		require.NoError(s.t, err)
		if n := stats.Ready + stats.Scheduled + stats.Leased; n == 0 && (!s.holds || stats.Dead == 0) {
			break
		}
		if ctx.Err() != nil {
			s.stuck()
			s.t.Fatalf("the queue does not empty: %+v", stats)
		}
	}
	require.NoError(s.t, s.end(ctx))
}

// stuck tells what is left in the queue that does not empty.
func (s *storm) stuck() {
	slots, err := s.queue.Slots(s.t.Context())
	for _, slot := range slots {
		if slot.Messages > 0 {
			s.t.Logf("%+v", slot)
		}
	}
	require.NoError(s.t, err)
	for _, state := range []chanq.State{chanq.StateReady, chanq.StateScheduled, chanq.StateLeased, chanq.StateDead} {
		entries, err := s.queue.Peek(s.t.Context(), state, 100)
		require.NoError(s.t, err)
		for _, e := range entries {
			s.t.Log(e.State, e.Key, string(e.Body), "attempts", e.Attempts, "by", e.LeasedBy, "until", e.LeaseUntil, "due", e.DueAt)
		}
	}
}

// quantiles of times.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	all = slices.Sorted(slices.Values(all))
	at := func(share float64) time.Duration {
		return all[int(share*float64(len(all)-1))].Round(time.Millisecond / 10)
	}
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, most %v", at(0.5), at(0.9), at(0.99), at(1))
}
