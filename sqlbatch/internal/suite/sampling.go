package suite

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var sampling = []test{
	{"SamplesAddUpInEachStep", samplesAddUp},
	{"ASampleHasTheGreatestOfWhatWasCounted", samplesCount},
	{"ASampleOfNothingAsksAndWritesNothing", samplesNothing},
	{"SamplesOfManyProcessesAreThoseOfAModel", samplesModel},
	{"SamplesAreReadFromATimeOn", samplesRange},
	{"OldSamplesAreDeletedStepByStep", samplesThin},
	{"SamplesGoWithTheirQueue", samplesDropped},
}

// The counts of columns of Samples after at.
const counts5, sums35 = 5, 5 + len(sqlbatch.Times{})

// sample runs a Sample, and reports whether a Depth was counted.
func (w *world) sample(q sqlbatch.Queue, s sqlbatch.Sample) (counted bool) {
	w.Helper()
	rows := w.run(q.Sample(s))
	for _, row := range rows {
		if fmt.Sprint(row[0]) == "10" {
			return fmt.Sprint(row[1]) == "1"
		}
	}
	require.Fail(w, "no row of the least step", rows)
	return false
}

func (w *world) samples(step time.Duration) [][]any {
	w.Helper()
	return w.run(w.Samples(0, step))
}

// sums adds up the samples of a step: a test might run past the end of a sample.
func (w *world) sums(step time.Duration) (sums [sums35]int64) {
	w.Helper()
	for _, row := range w.samples(step) {
		require.Len(w, row, 1+counts5+sums35)
		for i := range sums {
			sums[i] += row[1+counts5+i].(int64)
		}
	}
	return sums
}

// greatest returns the greatest of the counts of several samples: a test might run past the end of a sample.
func greatest(rows [][]any) (most [counts5]int64) {
	for _, row := range rows {
		for i := range most {
			if v := row[1+i]; v != nil {
				most[i] = max(most[i], reflect.ValueOf(v).Int())
			}
		}
	}
	return most
}

var steps = []time.Duration{10 * time.Second, time.Minute, time.Hour}

func samplesAddUp(w *world) {
	require.Empty(w, w.samples(steps[0]))
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1, Acked: 2, Nacked: 3, Died: 4, Delivered: 5, Times: sqlbatch.Times{6, 29: 7}})
	w.sample(w.Queue, sqlbatch.Sample{Sent: 10, Acked: 20, Nacked: 30, Died: 40, Delivered: 50, Times: sqlbatch.Times{60 * sqlbatch.OneWait, 29: 70}})
	w.sample(w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"}), sqlbatch.Sample{Sent: 100})
	for _, step := range steps {
		require.Equal(w, [sums35]int64{11, 22, 33, 44, 55, 6 + 60*sqlbatch.OneWait, 34: 77}, w.sums(step), step)
		for _, row := range w.samples(step) {
			require.Zero(w, row[0].(int64)%step.Milliseconds(), "it begins where its step begins")
			require.InDelta(w, w.now(), row[0], float64(step.Milliseconds()+60_000))
		}
	}
}

func samplesCount(w *world) {
	require.False(w, w.sample(w.Queue, sqlbatch.Sample{Sent: 1}), "not counted")
	for _, row := range w.samples(time.Hour) {
		require.Equal(w, make([]any, counts5), row[1:1+counts5])
	}
	require.True(w, w.sample(w.Queue, sqlbatch.Sample{Depth: &sqlbatch.Depth{Ready: 5, Scheduled: 4, Leased: 3, Dead: 2, Oldest: time.Second}}))
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1})
	w.sample(w.Queue, sqlbatch.Sample{Depth: &sqlbatch.Depth{Ready: 1, Scheduled: 5, Leased: 1, Dead: 3, Oldest: time.Millisecond}})
	require.Equal(w, [counts5]int64{5, 5, 3, 3, 1000}, greatest(w.samples(time.Hour)))
	require.Equal(w, int64(2), w.sums(time.Hour)[0], "counting adds nothing")
}

func samplesNothing(w *world) {
	require.False(w, w.sample(w.Queue, sqlbatch.Sample{}), "not counted")
	w.sample(w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"}), sqlbatch.Sample{Depth: &sqlbatch.Depth{}})
	require.False(w, w.sample(w.Queue, sqlbatch.Sample{}), "another queue is no matter")
	require.Empty(w, w.samples(steps[0]))
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1})
	require.False(w, w.sample(w.Queue, sqlbatch.Sample{}), "messages were sent")
	known := false
	for range 3 { // a sample might end in between, but not every time
		w.sample(w.Queue, sqlbatch.Sample{Depth: &sqlbatch.Depth{}})
		before := w.samples(steps[0])
		if known = w.sample(w.Queue, sqlbatch.Sample{}); known {
			require.Equal(w, before, w.samples(steps[0]))
			break
		}
	}
	require.True(w, known, "counted")
	w.age(steps[0], steps[0])
	require.False(w, w.sample(w.Queue, sqlbatch.Sample{}), "but not for this one")
}

// samplesModel adds and counts in random processes, and compares the sum and the greatest count of the samples of each step
// with a model that has no steps.
func samplesModel(w *world) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	queues := []sqlbatch.Queue{w.Queue, w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"})}
	var sums [2][sums35]int64
	var most [2][counts5]int64
	for range 60 {
		of := random.IntN(2)
		n := func() int64 { return random.Int64N(1_000_000) }
		s := sqlbatch.Sample{Sent: n(), Acked: n(), Nacked: n(), Died: n(), Delivered: n()}
		for i := range s.Times {
			s.Times[i] = n()*sqlbatch.OneWait + n()
		}
		for i, v := range append([]int64{s.Sent, s.Acked, s.Nacked, s.Died, s.Delivered}, s.Times[:]...) {
			sums[of][i] += v
		}
		if random.IntN(3) == 0 {
			s.Depth = &sqlbatch.Depth{Ready: random.IntN(10_000), Scheduled: random.IntN(10_000), Leased: random.IntN(10_000), Dead: random.IntN(10_000), Oldest: time.Duration(n()) * time.Millisecond}
			for i, v := range []int64{int64(s.Depth.Ready), int64(s.Depth.Scheduled), int64(s.Depth.Leased), int64(s.Depth.Dead), s.Depth.Oldest.Milliseconds()} {
				most[of][i] = max(most[of][i], v)
			}
		}
		w.run(queues[of].Sample(s))
	}
	for i, q := range queues {
		for _, step := range steps {
			var found [sums35]int64
			rows := w.run(q.Samples(0, step))
			for _, row := range rows {
				for j := range found {
					found[j] += row[1+counts5+j].(int64)
				}
			}
			require.Equal(w, sums[i], found, step)
			require.Equal(w, most[i], greatest(rows), step)
		}
	}
}

// age makes the samples of a step older.
func (w *world) age(step, by time.Duration) {
	w.exec("UPDATE chanq__samples SET at = at - CAST(%d AS bigint) WHERE step = %d", by.Milliseconds(), int(step.Seconds()))
}

func samplesRange(w *world) {
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1})
	w.age(time.Hour, 10*time.Hour)
	w.sample(w.Queue, sqlbatch.Sample{Sent: 2})
	all := w.samples(time.Hour)
	require.Len(w, all, 2)
	require.Less(w, all[0][0], all[1][0], "oldest first")
	require.Len(w, w.run(w.Samples(all[0][0].(int64), time.Hour)), 2)
	require.Equal(w, all[1:], w.run(w.Samples(all[0][0].(int64)+1, time.Hour)))
}

func samplesThin(w *world) {
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1})
	for _, step := range steps {
		w.age(step, 3*step)
	}
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1})
	for i, step := range steps {
		w.age(step, time.Duration(sqlbatch.SampleAges[i])*time.Second-2*step)
		require.Len(w, w.samples(step), 2)
	}
	w.run(w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"}).Thin())
	require.Len(w, w.samples(steps[0]), 2, "of another queue")
	require.Empty(w, w.run(w.Thin()))
	for _, step := range steps {
		require.Len(w, w.samples(step), 1, step)
	}
}

func samplesDropped(w *world) {
	w.sample(w.Queue, sqlbatch.Sample{Sent: 1})
	w.sample(w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "other"}), sqlbatch.Sample{Sent: 1})
	w.dropTables()
	var queues string
	require.NoError(w, w.DB.QueryRow("SELECT MIN(queue) FROM chanq__samples").Scan(&queues))
	require.Equal(w, "other", queues)
}
