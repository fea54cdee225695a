package main

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// Every step is measured briefly on PostgreSQL, which is the fastest in such a test, and one step
// on each of the others.
func TestAnOrderedQueueIsComparedWithAPlainOne(t *testing.T) {
	check := func(t *testing.T, steps string, want map[string]int, engine ...string) {
		seen := map[string]int{}
		results := runJSON(t, append([]string{
			"order", "-steps", steps, "-rounds", "1", "-n", "150", "-single-n", "2", "-keys", "50", "-samples", "100", "-batch", "50", "-blocked", "300", "-held", "300", "-slots", "8", "-rest", "50ms",
		}, engine...)...)
		for _, r := range results {
			seen[fmt.Sprintf("%s%s %d, %d keys", r.Step, r.Axis, r.Size, r.Keys)]++
			switch {
			case r.Step == keysStep:
				require.Positive(t, min(r.EnqueuePerS, r.DrainPerS, r.PipelinePerS, r.StatementsPerMessage, r.ClaimStatement))
				require.Equal(t, map[int]int{0: 150, 50: 150, 1: 2}[r.Keys], r.N)
			case r.Step == idleOrder: // in such a short time it might not have run a statement
			default:
				require.Positive(t, min(r.ClaimStatement, r.WallPerMsg, r.StatementsPerMessage))
			}
		}
		require.Equal(t, want, seen)
	}
	t.Run("sqlite", func(t *testing.T) {
		check(t, "blocked,held", map[string]int{"blocked 300, 50 keys": 1, "held 300, 50 keys": 1})
	})
	t.Run("emulator", func(t *testing.T) {
		check(t, "idle", map[string]int{"idle 0, 0 keys": 1, "idle 0, 50 keys": 1}, "-engine", "sqlserver", "-dsn", emulator)
	})
	t.Run("postgres", func(t *testing.T) {
		check(t, "keys,blocked,slots,idle", map[string]int{
			"keys 0, 0 keys": 1, "keys 0, 50 keys": 1, "keys 0, 1 keys": 1, "blocked 300, 50 keys": 1,
			"slots 8, 50 keys": 1, "idle 0, 0 keys": 1, "idle 0, 50 keys": 1,
		}, "-engine", "postgres", "-dsn", pgtest.DSN(t))
	})
}

func TestTargetsOfOrderAreShownWithTheMeasurements(t *testing.T) {
	of := func(step string, keys, round int, perS float64) measure.Result {
		return measure.Result{
			Engine: "postgres", Strategy: "chanq", Step: step, Keys: keys, Round: round, N: 10,
			EnqueuePerS: perS, DrainPerS: perS, PipelinePerS: perS, ClaimStatement: 1e6 / perS, IdleStatements: 1.05,
		}
	}
	grown := func(axis string, size int, claim float64) measure.Result {
		return measure.Result{Engine: "postgres", Strategy: "chanq", Axis: axis, Size: size, Round: 1, N: 10, Keys: 7, ClaimStatement: claim, WallPerMsg: claim}
	}
	results := []measure.Result{
		of(keysStep, 0, 1, 1000), of(keysStep, 7, 1, 920), of(keysStep, 1, 1, 10),
		of(keysStep, 0, 2, 100), of(keysStep, 7, 2, 92), of(keysStep, 1, 2, 1),
		grown(blockedStep, 1000, 15), grown(blockedStep, 0, 10), grown(slotsStep, 1, 10), grown(slotsStep, 64, 12),
		of(idleOrder, 0, 1, 1), of(idleOrder, 7, 1, 1),
	}
	o := options{engine: "postgres", keys: 7, growth: map[string][]int{blockedStep: {0, 1000}, slotsStep: {1, 8, 64}}}
	var out bytes.Buffer
	require.NoError(t, writeOrder(&out, o, results))
	for _, want := range []string{
		`ordered, 7 keys +0\.920 \(0\.920-0\.920\)`,
		`ordered, 1 key +0\.010 `,
		`enqueue, 7 keys: ordered / plain +0\.92 +≥ 0\.95 +MISSED`,
		`drain, 7 keys: ordered / plain +0\.92 +≥ 0\.9 +met`,
		`claim of a message, 1000 / 0 blocked +1\.50 +≤ 1\.3 +MISSED`,
		`claim of a message, 64 / 1 slots +1\.20 +≤ 1\.3 +met`,
		`statements a second of one that idles, heartbeat included +1\.05 +≤ 1\.1 +met`,
	} {
		require.Regexp(t, want, out.String())
	}
	out.Reset()
	o.dsn = emulator
	require.NoError(t, writeOrder(&out, o, results))
	require.NotContains(t, out.String(), "≥", "the emulator has no speed")
}

func TestFlagsOfOrderAreChecked(t *testing.T) {
	_, err := parse("order", []string{"-steps", "keys,chaos", "-keys", "0", "-rest", "0s", "-slots", "1025"}, io.Discard)
	for _, problem := range []string{`-steps "chaos"`, "-keys is 0", "-rest is 0s", "-slots is 1025"} {
		require.ErrorContains(t, err, problem)
	}
}

func TestMessagesHaveTheGivenKeys(t *testing.T) {
	o := options{engine: "sqlite", batch: 50, send: sendChannel}.ordered(5)
	err := onStore(t.Context(), o, "chanq", func(s *store, way strategy) error {
		require.NoError(t, way.enqueue(t.Context(), makeBodies(20, 10)))
		producer, err := s.producer(t.Context(), o.batch)
		require.NoError(t, err)
		send := stamped(t.Context(), producer, stampBytes, newKeys(o.keys))
		for i := range 20 {
			require.NoError(t, send(i, time.Now()))
		}
		require.NoError(t, producer.Close(t.Context()))
		queue, err := s.open(t.Context())
		require.NoError(t, err)
		entries, err := testdb.Peek(t.Context(), queue, chanqadmin.StateReady, 100)
		require.NoError(t, err)
		require.Len(t, entries, 40)
		seen := map[string]int{}
		for _, e := range entries {
			seen[e.Key]++
		}
		require.Len(t, seen, 5)
		require.Contains(t, seen, "customer 4")
		return nil
	})
	require.NoError(t, err)
}

func TestMessagesOfASustainedRunCanHaveKeys(t *testing.T) {
	results, received := runSustained(t, 400*time.Millisecond, 2, "-ordered", "-backlog", "500")
	for _, r := range results { // one or two: a slow machine merges them
		require.Equal(t, manyKeys, r.Keys)
	}
	require.Positive(t, received)
}
