// Package keystorm has only tests: processes send to an ordered queue and handle its messages, while they are killed,
// stopped for twice as long as a lease, and join and leave. The events of every process are checked against the
// guarantees for the order of keys (prove/keyorder).
//
// The test's process is the checker; the workers run the test's program in other processes. Each prints on its standard
// output what it is going to do before it does it, and the outcome. Every place of a worker has its own keys, whose
// numbers continue those of the former worker, so the sends of a key always follow one after another.
//
// The tests are short; to run longer, with any number of kills:
//
//	go test ./prove/keystorm -v -timeout 20m -run Killed/postgres -storm.for 10m -storm.kills 100
package keystorm_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/kills"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
	"github.com/chanq/chanq/prove/testdb/crew"
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
	// By default a queue that needs no server.
	stormShards = flag.String("storm.shards", "sqlite,emulator,sqlite", "comma-separated: the engines of a queue over several places")
	stormHolds  = flag.Bool("storm.holds", false, "dead messages keep their keys closed, and are redriven")
	stormSeed   = flag.Uint64("storm.seed", 0, "of the faults; 0: another one each time")
)

// engines by name.
var engines = map[string]testdb.Engine{
	testdb.SQLite.Name: testdb.SQLite, testdb.Postgres.Name: testdb.Postgres,
	testdb.EmulatorSocket.Name: testdb.EmulatorSocket, testdb.EmulatorSocketVersions.Name: testdb.EmulatorSocketVersions,
}

func TestOrderSurvivesKilledProcesses(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.SQLite, testdb.Postgres, testdb.EmulatorSocket, testdb.EmulatorSocketVersions} {
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
	// calm is how long draining the queue may take.
	calm = 3 * time.Minute
	// look is the interval between two checks of a trial's condition.
	look = 10 * time.Millisecond
)

// trial is one run.
type trial struct {
	*crew.Crew
	t       *testing.T
	task    task // of all workers
	shards  []chanqshards.Shard
	queue   *queue
	history *kills.History

	kills, freezes, leaves, holds, locks int
}

func weather(t *testing.T, holds bool, where ...testdb.Engine) {
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-storm.seed %d", seed)
	s := newStorm(t, holds, seed, where...)
	began := time.Now()
	s.blow(*stormFor, *stormKills)
	s.settle()
	v := checkHistory(s.history, holds)
	t.Logf("%v: %d workers, %d killed, %d stopped for %v, %d left and joined again, transactions were kept open %d times, rows locked %d times; %d messages, %d deliveries (%d of leases that had run out); %d ended, %d given back, %d lost, %d unknown; sent to handled: %s",
		time.Since(began).Round(time.Second/10), len(s.All), s.kills, s.freezes, 2**stormLease, s.leaves, s.holds, s.locks, v.messages, v.deliveries, v.stale,
		v.ends, v.returns, v.losses, v.unknowns, kills.Quantiles(s.history.Latencies()))
	t.Log(v)
	for _, fault := range slices.Concat(v.Inversions, v.Overlaps, v.Lost, v.Ghosts)[:min(3, v.Faults())] {
		key, _, _ := strings.Cut(fault, ": ")
		t.Log(fault, story(s.history, key))
	}
	require.True(t, v.OK(), v.String())
	require.Empty(t, v.faults)
	// Without kills of working processes the test would prove nothing.
	require.Equal(t, *stormKills, s.kills)
	require.Positive(t, s.holds)
	require.Positive(t, v.Repeated)
}

// newStorm creates the queue, in one database or over several, and a crew without workers.
func newStorm(t *testing.T, holds bool, seed uint64, where ...testdb.Engine) *trial {
	cfg := config(slots, holds)
	var databases []database
	for _, e := range where {
		if e.Name != testdb.SQLite.Name {
			e.Require(t)
		} else if testing.Short() {
			t.Skip("SKIPPED: -short kills no process")
		}
		databases = append(databases, database{e.Name, e.Create(t)})
	}
	shards, end, err := open(databases)
	require.NoError(t, err)
	t.Cleanup(end)
	if len(shards) == 1 {
		require.NoError(t, chanq.Migrate(t.Context(), shards[0].DB, queueName, cfg))
	} else {
		require.NoError(t, chanqshards.Migrate(t.Context(), shards, queueName, cfg))
	}
	queue, err := openQueue(t.Context(), shards, cfg)
	require.NoError(t, err)
	history := kills.NewHistory(*stormLease)
	c := crew.New(workerPart, workers, rand.New(rand.NewPCG(seed, 2)), history.Hear)
	t.Cleanup(c.Abandon)
	return &trial{Crew: c, t: t, shards: shards, queue: queue, history: history, task: task{
		Databases: databases, Keys: keys, Rate: *stormRate, LeaseFor: *stormLease, Slots: slots, Holds: holds,
		Work: 20 * time.Millisecond, Seed: seed,
	}}
}

// start fills a place with a new worker.
func (s *trial) start(place int) error {
	t := s.task
	t.Number, t.Place, t.Seed, t.Next = len(s.All), place, t.Seed+uint64(len(s.All)), nextOf(s.history)
	return s.Start(place, t)
}

// refill starts a worker in a place again, after a while and when the former worker has ended.
func (s *trial) refill(former *crew.Process, wait time.Duration) {
	s.After(wait, func() error {
		if !former.HasEnded() {
			s.refill(former, look)
			return nil
		}
		return s.start(former.Place)
	})
}

// run follows the schedule until done, for at most calm.
func (s *trial) run(what string, every time.Duration, done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), calm, errTooLong)
	defer cancel()
	err := s.Run(ctx, every, func() (bool, error) { return done(), nil })
	if errors.Is(err, errTooLong) {
		s.stuck()
	}
	require.NoError(s.t, err, what)
}

var errTooLong = errors.New("it took too long")

// blow fills the places, and then kills and stops workers and makes them leave and join again, until the time is over
// and count workers are killed.
func (s *trial) blow(length time.Duration, count int) {
	for i := range s.Places {
		require.NoError(s.t, s.start(i))
	}
	s.Often(length/time.Duration(count+1), s.toOne(func(p *crew.Process) error {
		if s.kills == count {
			return nil
		}
		s.kills++
		s.history.Kill(p.Number)
		err := s.Kill(p)
		s.refill(p, s.soon())
		return err
	}))
	freezeEvery, leaveEvery := max(length/20, 3**stormLease/2), max(length/200, *stormLease/2)
	s.Every(freezeEvery/2, freezeEvery, s.toOne(func(p *crew.Process) error {
		if err := s.Freeze(p, 2**stormLease); err != nil {
			s.t.Log(err) // not here
			return nil
		}
		s.freezes++
		return nil
	}))
	s.Every(leaveEvery, leaveEvery, s.toOne(func(p *crew.Process) error {
		s.leaves++
		s.Leave(p)
		s.refill(p, s.soon())
		return nil
	}))
	s.redrive()
	s.hold(length)
	s.lock()
	end := time.Now().Add(length)
	require.NoError(s.t, s.Run(s.t.Context(), look, func() (bool, error) { return time.Now().After(end) && s.kills >= count, nil }))
}

// toOne calls do with any worker. It does nothing if few run.
func (s *trial) toOne(do func(p *crew.Process) error) func() error {
	return func() error {
		running := s.Running()
		if len(running) < 3 {
			return nil
		}
		return do(running[s.Random.IntN(len(running))])
	}
}

// soon returns how long a place stays empty.
func (s *trial) soon() time.Duration { return time.Duration(s.Random.Int64N(int64(*stormLease))) }

// redrive redrives dead messages that hold their keys. A worker that is stopped might have locked the database, and only the
// goroutine that redrives lets it continue: it must not wait for long.
func (s *trial) redrive() {
	if s.task.Holds {
		s.Often(400*time.Millisecond, func() error {
			ctx, cancel := context.WithTimeout(s.t.Context(), *stormLease)
			defer cancel()
			s.queue.redrive(ctx, 1000)
			return nil
		})
	}
}

// settle runs all workers until the queue is empty, and then makes them leave.
func (s *trial) settle() {
	s.Calm()
	s.redrive()
	s.run("all places are filled", look, s.Idle)
	s.Order("drain")
	s.run("no worker sends", look, func() bool {
		return !slices.ContainsFunc(s.Running(), func(p *crew.Process) bool { return !s.history.Reported(p.Number, kills.Quiet) })
	})
	s.run("the queue empties", 5*look, func() bool {
		empty, err := s.queue.empty(s.t.Context())
		require.NoError(s.t, err)
		dead, err := s.queue.dead(s.t.Context())
		require.NoError(s.t, err)
		return empty && (!s.task.Holds || dead == 0)
	})
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), calm, errTooLong)
	defer cancel()
	require.NoError(s.t, s.End(ctx))
}

// stuck logs the contents of a queue that does not become empty.
func (s *trial) stuck() {
	for _, shard := range s.queue.shards {
		slots, err := testdb.Admin(shard).Slots(s.t.Context())
		for _, slot := range slots {
			if slot.Messages > 0 {
				s.t.Logf("%s: %+v", shard.Label(), slot)
			}
		}
		require.NoError(s.t, err)
		for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead} {
			entries, err := testdb.Peek(s.t.Context(), shard, state, 100)
			require.NoError(s.t, err)
			for _, e := range entries {
				s.t.Log(e.State, e.Key, string(e.Body), "attempts", e.Attempts, "by", e.LeasedBy, "until", e.LeaseUntil, "due", e.DueAt)
			}
		}
	}
}
