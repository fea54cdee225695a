package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestLatencyIsMeasuredInOneProcessAndAcrossTwo(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, engine ...string) {
		t.Parallel()
		results := runJSON(t, append([]string{"latency", "-saturation", "1000", "-for", "200ms", "-rounds", "1"}, engine...)...)
		require.Len(t, results, 4)
		seen := map[string]int{}
		for _, r := range results {
			seen[fmt.Sprintf("%.1f %d", r.Load, r.Processes)]++
			require.Positive(t, r.P50)
			require.GreaterOrEqual(t, r.P99, r.P50)
			require.GreaterOrEqual(t, r.P999, r.P99)
			require.Positive(t, r.CommitP50)
			require.InDelta(t, 1000*r.Load, r.RatePerS, 1e-9)
			require.Equal(t, int(r.RatePerS*0.2+0.5), r.N)
		}
		require.Equal(t, map[string]int{"0.5 1": 1, "0.5 2": 1, "0.1 1": 1, "0.1 2": 1}, seen)
	}
	t.Run("sqlite", func(t *testing.T) { check(t) })
	t.Run("postgres", func(t *testing.T) { check(t, "-engine", "postgres", "-dsn", pgtest.DSN(t)) })
}

func TestAGivenRateIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	results := runJSON(t, "latency", "-rate", "500", "-for", "100ms", "-rounds", "1")
	require.Len(t, results, 2)
	for _, r := range results {
		require.InDelta(t, 500, r.RatePerS, 0)
		require.Zero(t, r.Load)
	}
}

// Messages are due at equal distances, independent of earlier messages: a delayed sender does not
// hide its delay.
func TestMessagesCarryTheTimesAtWhichTheyWereDue(t *testing.T) {
	s, err := openQueue(t.Context(), options{engine: "sqlite"})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.remove()) }()
	require.NoError(t, senderTask{Place: s.place, Rate: 10_000, N: 50, Body: 20, Batch: 500}.run(t.Context(), s, nil))
	queue, err := s.open(t.Context())
	require.NoError(t, err)
	consumer, err := queue.Consume(t.Context(), chanq.ConsumerConfig{})
	require.NoError(t, err)
	defer consumer.Shutdown(t.Context())
	var leases []*chanq.Lease[[]byte]
	for len(leases) < 50 {
		more, err := consumer.Receive(t.Context(), 50-len(leases), 0)
		require.NoError(t, err)
		leases = append(leases, more...)
	}
	first := binary.BigEndian.Uint64(leases[0].Body)
	for i, l := range leases {
		require.InDelta(t, float64(i)*float64(100*time.Microsecond), float64(binary.BigEndian.Uint64(l.Body)-first), 2)
		require.Len(t, l.Body, 20)
		require.NoError(t, l.Release())
	}
}

func TestTheFailureOfAnotherProcessIsReported(t *testing.T) {
	err := senderTask{Place: place{Engine: "sqlite", File: t.TempDir() + "/none.db", Queue: "bench"}, N: 1, Rate: 1}.runApart(t.Context())
	require.ErrorContains(t, err, "send process")
	require.ErrorContains(t, err, "chanq", "with its output")
	_, err = parse("latency", []string{"-loads", "0.1,2"}, io.Discard)
	require.ErrorContains(t, err, `-loads: "2"`)
	_, err = parse("latency", []string{"-rate", "-1"}, io.Discard)
	require.ErrorContains(t, err, "-rate")
}
