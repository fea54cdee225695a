package history

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

// fake is a database that counts statements. It returns no rows, which means that no other process has counted the
// messages.
type fake struct {
	*Recorder

	mu   sync.Mutex // guards the fields below
	did  did
	fail error // of the next sample
}

// did has the counts of statements, and the contents of the samples.
type did struct {
	samples, counts, thins int
	sent                   int64
}

// now returns the counts when all goroutines are blocked.
func (f *fake) now() did {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.did
}

var (
	errUnknown = errors.New("the connection broke")
	errRefused = errors.New("no connection")
)

func newFake() *fake {
	q := sqlite.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	f := &fake{}
	f.Recorder = &Recorder{
		Every: Every, Task: func() *base.Task { return &base.Task{Away: func(error) bool { return true }} },
		Table: &table.Queue{SQL: q, Classify: func(err error) sqlbatch.Class {
			return map[error]sqlbatch.Class{errUnknown: sqlbatch.Unknown, errRefused: sqlbatch.Refused}[err]
		}},
		Run: func(_ context.Context, st sqlbatch.Statement, _ func(*sql.Rows) error) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			switch st.Text {
			case q.Stats(table.CountLimit).Text:
				f.did.counts++
			case q.Thin().Text:
				f.did.thins++
			case q.Sample(sqlbatch.Sample{}).Text: // only reads
			case q.Sample(sqlbatch.Sample{Sent: 1}).Text:
				f.did.samples++
				err := f.fail
				if f.fail = nil; err != nil {
					return err
				}
				f.did.sent += st.Args[0].(int64)
			default:
				return errors.New("another statement: " + st.Text)
			}
			return nil
		},
	}
	return f
}

func TestAProgramAddsToTheSamplesUntilItsLastPartEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		leave, also := f.Join(), f.Join()
		f.Add(sqlbatch.Sample{Sent: 3})
		time.Sleep(Every)
		require.EqualValues(t, 3, f.now().sent)
		require.Equal(t, 1, f.now().counts)
		require.Equal(t, 1, f.now().thins, "immediately")
		time.Sleep(5 * time.Minute)
		require.Equal(t, 31, f.now().counts)
		require.Equal(t, 6, f.now().thins, "once a minute")
		f.Add(sqlbatch.Sample{Sent: 1})
		leave()
		leave() // does nothing
		require.EqualValues(t, 3, f.now().sent)
		also()
		require.EqualValues(t, 4, f.now().sent)
		require.Equal(t, 31, f.now().counts)
	})
}

func TestAProgramThatEndsSoonWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		leave := f.Join()
		f.Add(sqlbatch.Sample{Sent: 3})
		time.Sleep(time.Second)
		leave()
		require.Zero(t, f.now().samples)
	})
}

func TestCountsOfAFailedSampleAreAddedLaterUnlessTheyMayBeStored(t *testing.T) {
	for failure, want := range map[error]int64{errRefused: 3, errUnknown: 0} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.fail = failure
			defer f.Join()()
			f.Add(sqlbatch.Sample{Sent: 3})
			time.Sleep(2 * Every)
			require.EqualValues(t, want, f.now().sent, failure)
		})
	}
}

func TestAProgramThatOnlySendsAddsItsCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.fail = errRefused
		f.Add(sqlbatch.Sample{Sent: 1})
		f.Add(sqlbatch.Sample{Sent: 1})
		time.Sleep(time.Hour)
		require.Equal(t, 1, f.now().samples, "and does not repeat it")
		f.Add(sqlbatch.Sample{Sent: 1})
		time.Sleep(time.Hour)
		require.Equal(t, 3, f.now().samples, "its counts, and those of the messages")
		require.EqualValues(t, 3, f.now().sent)
		require.Equal(t, 1, f.now().counts, "it counts the messages, unless its sample has failed")
	})
}

// The statements of a program take different times, as on a loaded machine: each period still has the counts of one.
func TestASteadyProgramAddsTheSameToEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		sums, run := map[time.Time]int64{}, f.Recorder.Run
		f.Recorder.Run = func(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
			before := f.did.sent
			err := run(ctx, st, scan)
			sums[time.Now().Truncate(Every)] += f.did.sent - before
			time.Sleep(time.Duration(len(sums)) * 10 * time.Millisecond)
			return err
		}
		leave := f.Join()
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			f.Add(sqlbatch.Sample{Sent: 2})
			time.Sleep(100 * time.Millisecond)
		}
		first, last := began.Truncate(Every), time.Now().Truncate(Every)
		leave()
		require.Len(t, sums, 61, "the last has the rest")
		for at, sum := range sums {
			if at.After(first) && at.Before(last) {
				require.InDelta(t, 200, sum, 2, "%v", at)
			}
		}
	})
}
