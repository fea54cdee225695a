package base

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLocalTimeCountsWhatAMachineSlept(t *testing.T) {
	var c clock
	const s = time.Second
	for _, reading := range []struct {
		what             string
		wall, mono, want time.Duration
	}{
		{"both run", 10 * s, 10 * s, 10 * s},
		{"asleep for a minute", 71 * s, 11 * s, 71 * s},
		{"awake", 72 * s, 12 * s, 72 * s},
		{"the clock is set back by an hour", 73*s - time.Hour, 13 * s, 73 * s},
		{"the clock continues", 74*s - time.Hour, 14 * s, 74 * s},
		{"asleep again", 85*s - time.Hour, 15 * s, 85 * s},
		{"the clock is set forward by an hour", 86 * s, 16 * s, 86*s + time.Hour},
		{"an earlier reading that arrives late", 84*s - time.Hour, 15 * s, 85*s + time.Hour},
		{"no further jump", 87 * s, 17 * s, 87*s + time.Hour},
	} {
		require.Equal(t, reading.want, c.read(reading.wall, reading.mono), reading.what)
	}
}

func TestLocalTimeDoesNotGatherTheNoiseOfItsReadings(t *testing.T) {
	var c clock
	for i := range 10_000 {
		mono := time.Duration(i) * time.Millisecond
		noise := time.Duration(i%3) * 400 * time.Microsecond
		require.Equal(t, mono, c.read(mono+noise, mono))
	}
}

func TestLocalTimeNeverGoesBackNorStandsStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c clock
		var wall, mono, last time.Duration
		for range rapid.IntRange(1, 50).Draw(t, "readings") {
			step := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "step"))
			jump := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "jump"))
			mono += step
			wall += step + jump
			now := c.read(wall, mono)
			require.GreaterOrEqual(t, now-last, step, "the monotonic clock")
			require.GreaterOrEqual(t, now-last, step+jump-2*Tolerance, "the wall clock")
			last = now
		}
	})
}
