package scatter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/scatter"
	"github.com/chanq/chanq/prove/testdb"
)

// scene is a kind of trouble. Each run of it draws its setting.
type scene struct {
	name        string
	short, long int // runs
	draw        func(*rand.Rand) scatter.Setting
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// poisoned has up to five poison messages among 50 others, and jobs of up to 20 s.
func poisoned(rng *rand.Rand) scatter.Setting {
	return scatter.Setting{
		Processes: 1 + rng.IntN(8), Workers: 1 + rng.IntN(16), Prefetch: pick(rng, 1, 16), Innocents: 50, Poisons: 1 + rng.IntN(5),
		Job: pick(rng, 10*time.Millisecond, time.Second, 20*time.Second), Restart: seconds(1 + rng.IntN(5)),
	}
}

// dying has processes that die by themselves, for eight hours.
func dying(rng *rand.Rand, lifeFor time.Duration, jobs ...time.Duration) scatter.Setting {
	return scatter.Setting{
		Processes: 1 + rng.IntN(4), Workers: 1 + rng.IntN(8), Prefetch: pick(rng, 1, 16), Innocents: 960, Every: 30 * time.Second,
		Job: pick(rng, jobs...), LifeFor: lifeFor, Restart: seconds(1 + rng.IntN(5)), For: 8 * time.Hour,
	}
}

// starting has a program that dies 5 s after each start, before it has handled any of its ten messages, for three hours.
func starting(rng *rand.Rand) scatter.Setting {
	return scatter.Setting{
		Processes: 1, Workers: 16, Prefetch: pick(rng, 1, 16), Innocents: 10, Job: 20 * time.Second, LifeFor: 5 * time.Second,
		Restart: 5 * time.Minute, For: 3 * time.Hour,
	}
}

var scenes = []scene{
	{"poison messages", 500, 10_000, poisoned},
	{"poison messages, and processes that are paused", 500, 10_000, func(rng *rand.Rand) scatter.Setting {
		set := poisoned(rng)
		set.PauseEvery = 20 * time.Minute
		return set
	}},
	{"poison messages, and stuck readers", 500, 10_000, func(rng *rand.Rand) scatter.Setting {
		set := poisoned(rng)
		set.Processes, set.Stuck = max(2, set.Processes), true
		return set
	}},
	{"processes that die every minute", 20, 1000, func(rng *rand.Rand) scatter.Setting {
		return dying(rng, time.Minute, 10*time.Millisecond, time.Second)
	}},
	{"processes that die every five minutes", 20, 1000, func(rng *rand.Rand) scatter.Setting {
		return dying(rng, 5*time.Minute, 10*time.Millisecond, time.Second, 20*time.Second)
	}},
	{"a program that dies after each start", 500, 10_000, starting},
}

// run makes the runs of a scene, and returns the sum of their results.
func (s scene) run(t *testing.T, rule scatter.Rule) (sum scatter.Result) {
	runs := s.short
	if testdb.IsLong() {
		runs = s.long
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 7))
		set := s.draw(rng)
		r := scatter.Simulate(rule, set, rng)
		if rule == scatter.Default && r.Killed > 0 {
			t.Errorf("seed %d: %d innocent messages were dead-lettered: %+v", seed, r.Killed, set)
		}
		if set.For == 0 && (r.Poisons != set.Poisons || r.Acked+r.Killed != set.Innocents) {
			t.Errorf("seed %d: not all messages have ended: %+v: %+v", seed, r, set)
		}
		sum.Acked, sum.Killed, sum.Poisons, sum.Deaths = sum.Acked+r.Acked, sum.Killed+r.Killed, sum.Poisons+r.Poisons, sum.Deaths+r.Deaths
		sum.Took += r.Took / time.Duration(runs)
	}
	t.Logf("%d runs of %s: %d innocent messages acked, %d dead; %d poison messages dead; %d processes died; a run took %v", runs, s.name,
		sum.Acked, sum.Killed, sum.Poisons, sum.Deaths, sum.Took.Round(time.Second))
	return sum
}

func TestOnlyPoisonMessagesAreDeadLettered(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, scatter.Default)
		})
	}
}

// TestEachPartOfTheRuleIsNeeded: with the count alone messages die together with poison messages, and without careful claims all messages of a program
// that dies after each start.
func TestEachPartOfTheRuleIsNeeded(t *testing.T) {
	t.Parallel()
	together, alone := scatter.Default, scatter.Default
	together.Scatter, together.Careful, alone.Careful = false, false, false
	require.Greater(t, scenes[0].run(t, together).Killed, 10)
	s := scenes[len(scenes)-1]
	s.draw = func(rng *rand.Rand) scatter.Setting {
		set := starting(rng)
		set.Prefetch = 16
		return set
	}
	sum := s.run(t, alone)
	require.Zero(t, sum.Acked)
	require.Greater(t, sum.Killed, 10*s.short*9/10)
}
