package measure

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// quietQueue receives 10 messages per second, each after 2 ms, and writes 1000 bytes of log for
// each; nine of ten updates are HOT.
func quietQueue(start time.Time) Sustained {
	received := func() int64 { return int64(10 * time.Since(start).Seconds()) }
	reported := int64(0)
	return Sustained{
		For: 20 * time.Second, Every: time.Second,
		Sent: func() int64 { return received() + 7 }, Received: received,
		Ages: func() Histogram {
			h := Histogram{}
			for ; reported < received(); reported++ {
				h.Add(2 * time.Millisecond)
			}
			return h
		},
		Heap: func() float64 { return 5 },
		Footprint: func(context.Context) (Footprint, error) {
			return Footprint{TableBytes: 100 * received(), WAL: 5000 + 1000*received(), Updates: 10 * received(), HotUpdates: 9 * received()}, nil
		},
	}
}

func TestASustainedRunPrintsEachIntervalAndHoldsASnapshotFromTenSecondsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := quietQueue(start)
		var results []Result
		s.Report = func(r Result) { results = append(results, r) }
		var held, released time.Duration
		s.Hold = func(context.Context) (func() error, error) {
			held = time.Since(start)
			return func() error { released = time.Since(start); return nil }, nil
		}
		require.NoError(t, s.Run(t.Context()))
		require.Len(t, results, 20)
		require.Equal(t, HoldAfter, held)
		require.Equal(t, 20*time.Second, released)
		for i, r := range results {
			require.InDelta(t, float64(i+1), r.AtS, 1e-9)
			require.Equal(t, i >= 10, r.Held, "the interval that ended when it was opened was without it")
			require.InDelta(t, 10, r.DrainPerS, 1e-9)
			require.InDelta(t, 1000, r.WALPerMsg, 1e-9)
			require.InDelta(t, 0.9, r.HotShare, 1e-9)
			require.InEpsilon(t, 2000, r.P99, 0.06)
			require.Equal(t, 7, r.Backlog)
		}
	})
}

func TestASustainedRunEndsWithASideAndWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := quietQueue(time.Now())
		s.Report = func(Result) {}
		failed := make(chan error, 1)
		s.Failed = failed
		broken := errors.New("broken")
		failed <- broken
		require.ErrorIs(t, s.Run(t.Context()), broken)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, s.Run(ctx), context.DeadlineExceeded)
		s.Hold = func(context.Context) (func() error, error) { return nil, broken }
		require.ErrorIs(t, s.Run(t.Context()), broken)
	})
}

func TestTheBacklogIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		backlog := 0
		require.ErrorIs(t, KeepBacklog(ctx, func() bool { return backlog < 5 }, func(due time.Time) error {
			require.Zero(t, time.Since(due))
			backlog++
			return nil
		}), context.DeadlineExceeded)
		require.Equal(t, 5, backlog)
		full := errors.New("full")
		require.ErrorIs(t, KeepBacklog(t.Context(), func() bool { return true }, func(time.Time) error { return full }), full)
	})
}

// A run of 150 s that falls from 100 to 50 per second while a snapshot is held from 10 s on, and
// whose messages take longer in the last minute.
func TestASummaryComparesTheEndsOfARun(t *testing.T) {
	var intervals []Result
	for i := range 15 {
		r := Result{AtS: float64(10 * (i + 1)), N: 1000, DrainPerS: 100, Held: i >= 1, WALPerMsg: 800, Ages: Histogram{}}
		r.TableBytes, r.IndexBytes, r.Updates, r.HotUpdates = int64(i)<<20, 1<<20, int64(i+1)*10, int64(i+1)*6
		if i >= 1 {
			r.DrainPerS = 80
		}
		if i >= 12 {
			r.DrainPerS, r.WALPerMsg = 50, 950
		}
		for range 100 {
			r.Ages.Add(time.Millisecond)
		}
		if i == 1 {
			for range 50 {
				r.Ages.Add(10 * time.Second)
			}
		}
		if i == 9 || i == 8 {
			for range 50 {
				r.Ages.Add(time.Second)
			}
		}
		intervals = append(intervals, r)
	}
	s := Summarise(intervals)
	require.InDelta(t, (100.+80+80)/3, s.First, 1e-9)
	require.InDelta(t, 50, s.Last, 1e-9)
	require.InDelta(t, 100, s.BeforeHeld, 1e-9)
	require.Equal(t, time.Minute, s.Window)
	require.InEpsilon(t, 10_000, s.FirstP99, 0.06)
	require.InEpsilon(t, 1000, s.LastP99, 0.06, "one of the two slow intervals is in the last minute")
	require.InEpsilon(t, 1, s.P50, 0.06)
	require.EqualValues(t, 15<<20, s.Largest)
	require.InDelta(t, 830, s.WALPerMsg, 1e-9)
	require.InDelta(t, 0.6, s.HotShare, 1e-9)
	var out bytes.Buffer
	require.NoError(t, WriteSummary(&out, s))
	require.Contains(t, out.String(), "last fifth / first fifth 0.58 (50 / 87 received a second); last fifth / what came before the snapshot 0.50 (100)")
	table := SummaryTable("", []string{"a"}, []Summary{s})
	require.Equal(t, []string{"a", "150", "86.7", "50.0", "0.58"}, table.Rows[0][:5])
	require.Zero(t, Summarise(nil))
}

func TestALineMarksUnknownValues(t *testing.T) {
	require.Regexp(t, ` -\s+-\s+0\.0$`, SustainedLine(Result{AtS: 5}))
	require.Regexp(t, ` 850\s+0\.00\s+0\.0$`, SustainedLine(Result{AtS: 5, WALPerMsg: 850, Footprint: Footprint{WAL: 1, Updates: 3}}))
}
