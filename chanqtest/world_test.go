package chanqtest_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines are the databases of users: their own of chanqtest, and one that they open.
var engines = []struct {
	name   string
	bubble bool
	open   func(testing.TB) *sql.DB
}{
	{"sqlite", true, chanqtest.DB},
	{"emulator", true, func(t testing.TB) *sql.DB {
		testdb.Emulator.Require(t)
		c, err := testdb.Emulator.Connect(testdb.Emulator.Create(t))
		require.NoError(t, err)
		return chanqtest.Open(t, c)
	}},
	{"postgres", false, func(t testing.TB) *sql.DB {
		testdb.Postgres.Require(t)
		return chanqtest.Postgres(t)
	}},
}

// onEach runs a test on each engine, in a bubble if it can be in one.
func onEach(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			testdb.InBubble(t, e.bubble, func(t *testing.T) { test(t, e.open(t)) })
		})
	}
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

func queueOf[T any](t testing.TB, db *sql.DB, name string, spec chanq.Spec) *chanq.Queue[T] {
	t.Helper()
	require.NoError(t, chanq.Migrate(t.Context(), db, name, chanq.Config{Spec: spec}))
	q, err := chanq.Open[T](t.Context(), db, name, chanq.Config{})
	require.NoError(t, err)
	return q
}

func jobsOf(t testing.TB, db *sql.DB) *chanq.Queue[chanqjobs.Job] {
	t.Helper()
	require.NoError(t, chanq.Migrate(t.Context(), db, "jobs", chanq.Config{}))
	q, err := chanqjobs.Open(t.Context(), db, "jobs", chanq.Config{})
	require.NoError(t, err)
	return q
}

func send[T any](t testing.TB, q *chanq.Queue[T], ms ...chanq.Message[T]) {
	t.Helper()
	_, err := q.Send(t.Context(), ms...)
	require.NoError(t, err)
}

// worker is a part with one worker.
func worker[T any](q *chanq.Queue[T], fn chanq.Handler[T]) chanqjobs.Part {
	return chanqjobs.Work(q, 1, fn, chanq.ConsumerConfig{Name: "worker"})
}

func lines[S fmt.Stringer](list []S) (texts []string) {
	for _, s := range list {
		texts = append(texts, s.String())
	}
	return texts
}

func number(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), query).Scan(&n))
	return n
}

// failing is a test that is to fail. Its cleanups run at the end of failure.
type failing struct {
	testing.TB
	texts    []string
	cleanups []func()
}

func (f *failing) Name() string        { return f.TB.Name() + "/failing" }
func (f *failing) Helper()             {}
func (f *failing) Cleanup(do func())   { f.cleanups = append(f.cleanups, do) }
func (f *failing) Failed() bool        { return len(f.texts) > 0 }
func (f *failing) Logf(string, ...any) {}
func (f *failing) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}
func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }
func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// failure returns what a test prints that fails.
func failure(t testing.TB, test func(testing.TB)) string {
	t.Helper()
	f, done := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(f.cleanups) - 1; i >= 0; i-- {
				f.cleanups[i]()
			}
		}()
		test(f)
	}()
	<-done
	require.NotEmpty(t, f.texts, "it does not fail")
	return strings.Join(f.texts, "\n")
}
