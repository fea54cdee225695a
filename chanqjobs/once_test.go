package chanqjobs_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// onceIn calls Once in a transaction, which it rolls back if end returns an error.
func onceIn(w *testdb.World, q *chanq.Queue[chanqjobs.Job], name, key string, period time.Duration, end func(first bool) error) error {
	return chanq.InTx(w.Soon(), q.DB(), func(ctx context.Context, tx *sql.Tx) error {
		first, err := chanqjobs.Once(ctx, tx, q, name, key, period)
		if err != nil {
			return err
		}
		return end(first)
	})
}

// once returns the result of Once.
func once(w *testdb.World, q *chanq.Queue[chanqjobs.Job], name, key string, period time.Duration) (is bool) {
	w.Helper()
	require.NoError(w, onceIn(w, q, name, key, period, func(first bool) error { is = first; return nil }))
	return is
}

func withOnce(w *testdb.World) *chanq.Queue[chanqjobs.Job] {
	w.Helper()
	q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
	require.NoError(w, chanqjobs.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
	return q
}

// Several processes call Once with few keys. Some of their transactions are rolled back, and their connections break before or after the
// commit. Each transaction that is the first of a period says so in a row.
func TestOneCallOfManyIsTheFirstOfAPeriod(t *testing.T) {
	const callers, period = 8, 200 * time.Millisecond
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := withOnce(w)
		n := q.Names()
		w.Define(n.SQL("{create chanq__seen} (item integer NOT NULL, until bigint NOT NULL)"))
		keys := []string{"a", "A", "b"}
		lost := w.Failure(sqlbatch.Unknown)
		until := time.Now().Add(testdb.Of(2*time.Second, 4*time.Second))
		var all sync.WaitGroup
		for c := range callers {
			faults, db := w.Connect()
			mine := testdb.OpenOn[chanqjobs.Job](w, db, "jobs", chanq.Config{History: chanq.HistoryOff, Codec: chanqjobs.Codec(nil)})
			dice := rand.New(rand.NewPCG(uint64(c), 7))
			var mu sync.Mutex
			faults.Inject(func(op faultdb.Op) faultdb.Fault {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case op.Kind != faultdb.Commit:
				case dice.IntN(6) == 0:
					return faultdb.Cut(lost)
				case dice.IntN(6) == 0:
					return faultdb.Cut(lost).Applied()
				}
				return faultdb.Fault{}
			})
			random := rand.New(rand.NewPCG(uint64(c), 8))
			all.Go(func() {
				defer faults.Inject(nil)
				for time.Now().Before(until) {
					key := random.IntN(len(keys))
					_ = chanq.InTx(w.Soon(), db, func(ctx context.Context, tx *sql.Tx) error { // errors are as injected
						first, err := chanqjobs.Once(ctx, tx, mine, "seen", keys[key], period)
						if err == nil && first {
							_, err = tx.ExecContext(ctx, n.SQL("INSERT INTO {chanq__seen} (item, until) SELECT ?1, until FROM {chanq__once} WHERE item = ?2"), key, []byte(keys[key]))
						}
						if err == nil && random.IntN(6) == 0 {
							err = errors.New("rolled back")
						}
						return err
					})
					time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
				}
			})
		}
		all.Wait()
		rows, err := w.DB.QueryContext(w.Soon(), n.SQL("SELECT item, until FROM {chanq__seen} ORDER BY item, until"))
		require.NoError(w, err)
		defer rows.Close()
		firsts, last := make([]int, len(keys)), make([]int64, len(keys))
		for rows.Next() {
			var key int
			var until int64
			require.NoError(w, rows.Scan(&key, &until))
			require.GreaterOrEqual(w, until-last[key], period.Milliseconds(), "two calls were the first of a period")
			firsts[key], last[key] = firsts[key]+1, until
		}
		require.NoError(w, rows.Err())
		for _, n := range firsts {
			require.GreaterOrEqual(w, n, 5, "firsts: %v", firsts)
		}
	})
}

// The second call waits for the transaction of the first.
func TestOnceTakesNothingIfTheTransactionIsRolledBack(t *testing.T) {
	testdb.OnEach(t, append([]testdb.Engine{testdb.EmulatorVersions}, engines...), func(w *testdb.World) {
		q := withOnce(w)
		_, db := w.Connect()
		other := testdb.OpenOn[chanqjobs.Job](w, db, "jobs", chanq.Config{History: chanq.HistoryOff, Codec: chanqjobs.Codec(nil)})
		for _, end := range []error{errors.New("rolled back"), nil} {
			second, ended := make(chan bool, 1), atomic.Bool{}
			err := onceIn(w, q, "welcome", "ada", time.Hour, func(first bool) error {
				require.True(w, first)
				go func() {
					_ = onceIn(w, other, "welcome", "ada", time.Hour, func(first bool) error {
						if !ended.Load() {
							w.Errorf("the second call has not waited")
						}
						second <- first
						return errors.New("rolled back")
					})
				}()
				time.Sleep(50 * time.Millisecond)
				ended.Store(true)
				return end
			})
			require.Equal(w, end, err)
			require.Equal(w, end != nil, testdb.Receive(w, second, "the second call"))
		}
	})
}

// A customer ADA is not the customer ada, whatever the collation of the database.
func TestOnceComparesKeysExactly(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := withOnce(w)
		keys := []string{"ada", "ADA", "ada ", " ada", "adä", "ada\u0308", strings.Repeat("x", 200)}
		for _, name := range []string{"welcome", "Welcome"} {
			for _, key := range keys {
				require.True(w, once(w, q, name, key, time.Hour), "%q %q", name, key)
			}
			for _, key := range keys {
				require.False(w, once(w, q, name, key, time.Hour), "%q %q", name, key)
			}
		}
	})
}

// moved is a clock that a test moves.
type moved struct {
	mssqltest.RealClock
	by *atomic.Int64
}

func (m moved) Now() time.Time { return m.RealClock.Now().Add(time.Duration(m.by.Load())) }

func TestTheClockOfTheDatabaseDecidesWhatIsOnce(t *testing.T) {
	clock := moved{by: new(atomic.Int64)}
	testdb.OnEach(t, []testdb.Engine{testdb.EmulatorAt(clock)}, func(w *testdb.World) {
		q := withOnce(w)
		require.True(w, once(w, q, "welcome", "ada", time.Hour))
		clock.by.Store(int64(time.Hour - time.Second))
		require.False(w, once(w, q, "welcome", "ada", time.Hour))
		clock.by.Store(int64(time.Hour))
		require.True(w, once(w, q, "welcome", "ada", time.Hour))
	})
}

func TestOldRowsOfOnceAreTrimmed(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(1000 * time.Hour)
		q := withOnce(w)
		count := func() (n int) {
			require.NoError(w, w.DB.QueryRowContext(w.Soon(), q.Names().SQL("SELECT count(*) FROM {chanq__once}")).Scan(&n))
			return n
		}
		for i := range 25 {
			require.True(w, once(w, q, "welcome", string(rune('a'+i)), time.Minute))
		}
		require.True(w, once(w, q, "welcome", "long", 24*time.Hour))
		time.Sleep(time.Hour)
		require.False(w, once(w, q, "welcome", "long", 24*time.Hour))
		require.True(w, once(w, q, "welcome", "z1", 24*time.Hour))
		require.Equal(w, 27, count(), "an hour after the call")
		time.Sleep(2 * time.Minute)
		for i, left := range []int{18, 9, 5} {
			require.True(w, once(w, q, "welcome", string(rune('0'+i)), 24*time.Hour))
			require.Equal(w, left, count())
		}
		require.False(w, once(w, q, "welcome", "long", 24*time.Hour))
		require.True(w, once(w, q, "welcome", "a", time.Minute))
	})
}

func TestOnceChecksItsArguments(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		q := withOnce(w)
		nothing := func(bool) error { return nil }
		for want, c := range map[string]struct {
			name, key string
			period    time.Duration
		}{
			"chanqjobs: once \"\" \"a\": the name and the key must be 1 to 200 bytes of UTF-8 without NUL": {"", "a", time.Hour},
			"1 to 200 bytes of UTF-8": {"a", strings.Repeat("x", 201), time.Hour},
			"UTF-8 without NUL":       {"a", "a\x00", time.Hour},
			"of UTF-8 without":        {"a", "\xff", time.Hour},
			"the period is 0s: must be above 0, and at most 876000h0m0s": {"a", "a", 0},
			"the period is 876000h0m0.000000001s":                        {"a", "a", 876000*time.Hour + 1},
		} {
			require.ErrorContains(w, onceIn(w, q, c.name, c.key, c.period, nothing), want)
		}
		_, err := chanqjobs.Once(w.Soon(), w.DB, q, "a", "a", time.Hour)
		require.ErrorContains(w, err, "which commits each statement immediately")
		require.True(w, once(w, q, "a", "a", time.Nanosecond))
		require.False(w, once(w, q, "a", "a", time.Hour), "a period is at least a millisecond")
		w.Define(q.Names().SQL("DROP TABLE {chanq__once}"))
		require.ErrorContains(w, onceIn(w, q, "a", "a", time.Hour, nothing), "chanq__once")
	})
}
