package chanqjobs_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// noticeTables has a row for each committed call of a DeathFunc.
var noticeTables = chanq.Tables{Name: "notices", Version: 1, MinVersion: 1, Create: func(chanq.Dialect, int) []string {
	return []string{`{create chanq__notices} (id {text} NOT NULL, fence bigint NOT NULL, cause integer NOT NULL)`}
}}

func migrateNotices(w *testdb.World) {
	_, err := chanq.MigrateTables(w.Soon(), w.Tables(), chanq.Config{}, noticeTables)
	require.NoError(w, err)
}

// insertNotice is the statement of a DeathFunc.
func insertNotice(ctx context.Context, tx chanq.Tx, n chanq.Names, dead chanqadmin.Entry) error {
	_, err := tx.ExecContext(ctx, n.SQL(`INSERT INTO {chanq__notices} (id, fence, cause) VALUES (?1, ?2, ?3)`),
		dead.ID.String(), dead.Fence, int64(dead.Cause))
	return err
}

// notices returns the causes that were noticed, by the IDs of the messages.
func notices(w *testdb.World, n chanq.Names) map[string][]chanq.Cause {
	w.Helper()
	all := map[string][]chanq.Cause{}
	rows, err := w.DB.QueryContext(w.Soon(), n.SQL(`SELECT id, cause FROM {chanq__notices}`))
	require.NoError(w, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var cause int64
		require.NoError(w, rows.Scan(&id, &cause))
		all[id] = append(all[id], chanq.Cause(cause))
	}
	require.NoError(w, rows.Err())
	return all
}

// run runs a part until the returned function is called, or the test ends.
func run(w *testdb.World, part chanqjobs.Part) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w, testdb.Receive(w, done, "the end of a part"))
	})
	w.Cleanup(stop)
	return stop
}

// deathsOf returns the Deaths of another process, which insert notices.
func deathsOf(w *testdb.World, queue string) *chanqjobs.Deaths {
	w.Helper()
	_, db := w.Connect()
	return deathsOn(w, testdb.OpenOn[[]byte](w, db, queue, chanq.Config{History: chanq.HistoryOff}))
}

func deathsOn(w *testdb.World, q *chanq.Queue[[]byte]) *chanqjobs.Deaths {
	d := chanqjobs.NewDeaths(q, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
		return insertNotice(ctx, tx, q.Names(), dead)
	})
	d.Failed = func(err error) { w.Errorf("failed: %v", err) }
	return d
}

// die sends messages, and dead-letters all that are in the queue.
func die(w *testdb.World, q *chanq.Queue[chanqjobs.Job], ms ...chanq.Message[chanqjobs.Job]) []chanq.ID {
	w.Helper()
	ids := testdb.Send(w, q, ms...)
	handle(w, q, len(ms), func(context.Context, *chanq.Lease[chanqjobs.Job]) error { return chanq.DeadLetter(errors.New("no")) }, chanq.ConsumerConfig{})
	return ids
}

func TestADeathOfEachCauseIsNoticedOnceByManyProcesses(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{MaxCrashes: 1})
		migrateNotices(w)
		for range 3 {
			run(w, deathsOf(w, "jobs").Run)
		}
		want := map[string][]chanq.Cause{}
		dies := func(cause chanq.Cause, ids ...chanq.ID) {
			for _, id := range ids {
				want[id.String()] = append(want[id.String()], cause)
			}
		}
		dies(chanq.CauseKilled, testdb.Send(w, q, note.New("crash"))...)
		w.Hold("jobs", 1, time.Millisecond) // its process has died
		short := note.New("late")
		short.TTL = time.Millisecond
		dies(chanq.CauseExpired, testdb.Send(w, q, short)...)
		undecodable := note.New("{")
		undecodable.Type = welcome.Name()
		dies(chanq.CauseUndecodable, testdb.Send(w, q, undecodable)...)
		rejected := testdb.Send(w, q, charge.New(1))
		dies(chanq.CauseRejected, rejected...)
		dies(chanq.CauseExhausted, testdb.Send(w, q, note.New("a"), note.New("b"))...)
		time.Sleep(2 * time.Millisecond) // the TTL
		mux := chanqjobs.NewMux()
		chanqjobs.Handle(mux, welcome, nothing[mail], chanqjobs.Options{})
		chanqjobs.Handle(mux, charge, func(context.Context, *chanq.Lease[int]) error { return chanq.DeadLetter(errors.New("no")) }, chanqjobs.Options{})
		chanqjobs.Handle(mux, note, func(context.Context, *chanq.Lease[string]) error { return errors.New("no") }, chanqjobs.Options{MaxAttempts: 1})
		handle(w, q, 6, mux.Handle, chanq.ConsumerConfig{Backoff: soon})
		same := func() bool {
			got := notices(w, q.Names())
			for id := range got {
				slices.Sort(got[id])
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		}
		w.Eventually("each death is noticed", same)

		_, err := testdb.RedriveIDs(w.Soon(), q, rejected...)
		require.NoError(w, err)
		handle(w, q, 1, mux.Handle, chanq.ConsumerConfig{Backoff: soon})
		dies(chanq.CauseRejected, rejected...)
		w.Eventually("the second death of a redriven message is noticed", same)
		if w.Engine.Bubble {
			time.Sleep(5 * time.Minute)
			require.True(w, same(), "and nothing else: %v", notices(w, q.Names()))
		}
	})
}

// Messages that no handler sees: their bodies or headers cannot be decoded, or their contents cannot be read.
func TestADeathThatNoHandlerSawIsNoticed(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := w.Queue("letters", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
		migrateNotices(w)
		letters := testdb.OpenOn[mail](w, w.DB, "letters", chanq.Config{})
		want := map[string][]chanq.Cause{}
		id := testdb.Send(w, q, chanq.Msg("no letter"))[0]
		want[id.String()] = []chanq.Cause{chanq.CauseUndecodable}
		testdb.RequireNone(w, letters)

		id = testdb.Send(w, letters, chanq.Msg(mail{Order: 1}))[0]
		want[id.String()] = []chanq.Cause{chanq.CauseUnreadable}
		st, bad := w.Statements("letters"), w.Failure(sqlbatch.BadRow)
		claims := []sqlbatch.Statement{st.Claim(sqlbatch.ClaimParams{Rows: 1}), st.Claim(sqlbatch.ClaimParams{Rows: 1, PastReaders: true})}
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			bare := slices.ContainsFunc(op.Args, func(arg driver.NamedValue) bool { return fmt.Sprint(arg.Value) == "-1" })
			claim := !bare && slices.ContainsFunc(claims, func(st sqlbatch.Statement) bool { return testdb.Runs(op, st) })
			if claim || testdb.Runs(op, st.Contents(sqlbatch.Item{})) {
				return faultdb.Fail(bad)
			}
			return f
		})
		testdb.Start(w, letters, chanq.ConsumerConfig{})
		w.Eventually("it is dead", func() bool { return testdb.Stats(w, q).Dead == 2 })
		w.Faults.Inject(nil)
		run(w, deathsOf(w, "letters").Run)
		w.Eventually("each death is noticed", func() bool { return fmt.Sprint(notices(w, q.Names())) == fmt.Sprint(want) })
	})
}

// A process finds a death, another one notices it, and the first goes on.
func TestADeathIsNoticedOnceByTwoProcessesThatFoundIt(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		migrateNotices(w)
		id := die(w, q, note.New("a"))[0]
		faults, db := w.Connect()
		late := deathsOn(w, testdb.OpenOn[[]byte](w, db, "jobs", chanq.Config{History: chanq.HistoryOff}))
		found, gate := make(chan struct{}), make(chan struct{})
		faults.Inject(testdb.NewStrike(faultdb.Hold(gate), func(op faultdb.Op) bool {
			is := testdb.Runs(op, w.Statements("jobs").Get(id))
			if is {
				close(found)
			}
			return is
		}).Choose)
		run(w, late.Run)
		testdb.Receive(w, found, "the first process reads the message")
		run(w, deathsOf(w, "jobs").Run)
		w.Eventually("the other one notices it", func() bool { return len(notices(w, q.Names())) == 1 })
		close(gate)
		last := die(w, q, note.New("b"))[0]
		w.Eventually("both go on", func() bool { return len(notices(w, q.Names())) == 2 })
		time.Sleep(1500 * time.Millisecond)
		got := notices(w, q.Names())
		require.Len(w, got[id.String()], 1)
		require.Len(w, got[last.String()], 1)
	})
}

// A function that fails for one message, slowly, or that panics.
func TestADeathThatCannotBeNoticedDelaysNoOther(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(100 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{})
		migrateNotices(w)
		bad := die(w, q, note.New("bad"))[0]
		var mu sync.Mutex
		var tried, failed []time.Duration
		began := time.Now()
		raw := testdb.OpenOn[[]byte](w, w.DB, "jobs", chanq.Config{History: chanq.HistoryOff})
		d := chanqjobs.NewDeaths(raw, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
			if dead.ID != bad {
				return insertNotice(ctx, tx, q.Names(), dead)
			}
			mu.Lock()
			tried = append(tried, time.Since(began).Round(time.Second))
			n := len(tried)
			mu.Unlock()
			if err := insertNotice(ctx, tx, q.Names(), dead); err != nil { // which is rolled back
				return err
			}
			if n == 2 {
				panic("it panics")
			}
			return errors.New("it fails")
		})
		d.Failed = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			require.ErrorContains(w, err, "chanq: death of jobs "+bad.String())
			failed = append(failed, time.Since(began).Round(time.Second))
		}
		stop := run(w, d.Run)
		for range 20 {
			ids := die(w, q, note.New("good"))
			time.Sleep(1100 * time.Millisecond)
			require.Len(w, notices(w, q.Names())[ids[0].String()], 1, "within a second")
		}
		time.Sleep(time.Hour)
		stop()
		require.NotContains(w, notices(w, q.Names()), bad.String())
		require.Equal(w, tried, failed)
		require.Greater(w, len(tried), 15)
		for i, at := range tried[1:] {
			pause := min(time.Second<<i, 5*time.Minute)
			require.InDelta(w, pause, at-tried[i], float64(1500*time.Millisecond), "%d: %v", i, tried)
		}
	})
}

// More failing messages than one read returns, and one new death behind them.
func TestManyDeathsThatCannotBeNoticedDelayNoOther(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		w.Within(100 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		migrateNotices(w)
		ms := make([]chanq.Message[chanqjobs.Job], 1100)
		for i := range ms {
			ms[i] = note.New("bad")
		}
		bad := map[chanq.ID]bool{}
		for _, id := range die(w, q, ms...) {
			bad[id] = true
		}
		raw := testdb.OpenOn[[]byte](w, w.DB, "jobs", chanq.Config{History: chanq.HistoryOff})
		d := chanqjobs.NewDeaths(raw, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
			if bad[dead.ID] {
				return errors.New("it fails")
			}
			return insertNotice(ctx, tx, q.Names(), dead)
		})
		d.Failed = func(error) {}
		run(w, d.Run)
		time.Sleep(10 * time.Minute)
		die(w, q, note.New("good"))
		time.Sleep(3 * time.Second)
		require.Len(w, notices(w, q.Names()), 1)
	})
}

// Whichever operation of a process breaks, before or after it is applied: the function is committed once.
func TestADeathIsNoticedOnceWhateverBreaks(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(100 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		migrateNotices(w)
		faults, db := w.Connect()
		raw := testdb.OpenOn[[]byte](w, db, "jobs", chanq.Config{History: chanq.HistoryOff})
		commits := 0
		for n := 0; ; n++ {
			id := die(w, q, note.New("a"))[0]
			var strike *testdb.Strike
			from := 0
			d := chanqjobs.NewDeaths(raw, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
				return insertNotice(ctx, tx, q.Names(), dead)
			})
			d.Failed = func(error) {}
			from = faults.Ops()
			strike = testdb.NewStrike(w.Broken(n%2 == 1), func(op faultdb.Op) bool { return op.N == from+n/2 })
			faults.Inject(strike.Choose)
			stop := run(w, d.Run)
			time.Sleep(time.Minute)
			stop()
			faults.Inject(nil)
			require.Len(w, notices(w, q.Names())[id.String()], 1, "after a failure of %s", strike.Struck())
			if op := strike.Struck(); op == "" {
				break
			}
			commits++
			require.Less(w, commits, 1000)
			if n/2 > 40 { // looks of an idle process
				break
			}
		}
		require.Greater(w, commits, 20)
	})
}

func TestDeathsCostOneStatementPerSecondWhileThereAreNone(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		migrateNotices(w)
		die(w, q, note.New("a"))
		faults, db := w.Connect()
		run(w, deathsOn(w, testdb.OpenOn[[]byte](w, db, "jobs", chanq.Config{History: chanq.HistoryOff})).Run)
		time.Sleep(10 * time.Second)
		require.Len(w, notices(w, q.Names()), 1)
		var mu sync.Mutex
		statements := 0
		faults.Inject(func(op faultdb.Op) faultdb.Fault {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind == faultdb.Exec || op.Kind == faultdb.Query {
				statements++
			}
			return faultdb.Fault{}
		})
		time.Sleep(100 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.InDelta(w, 100, statements, 1)
	})
}

func TestDeathsNeedTheTablesOfTheirQueue(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		w.Exec("UPDATE chanq__queues SET version = 2, min_version = 2")
		d := chanqjobs.NewDeaths(q, func(context.Context, *sql.Tx, chanqadmin.Entry) error { return nil })
		require.ErrorIs(w, d.Run(w.Soon()), chanq.ErrNoSchema)
		w.Exec("UPDATE chanq__queues SET version = 9, min_version = 9")
		require.ErrorIs(w, d.Run(w.Soon()), chanq.ErrNewerSchema)
		require.PanicsWithValue(w, "chanqjobs: deaths: the function is nil", func() { chanqjobs.NewDeaths(q, nil) })
	})
}

func TestABodyOfADeadJobIsDecoded(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		q := jobsOf(w, "jobs", chanq.Config{})
		die(w, q, welcome.New(mail{7, "ann"}))
		got := make(chan mail, 1)
		run(w, chanqjobs.NewDeaths(q, func(_ context.Context, _ *sql.Tx, dead chanqadmin.Entry) error {
			_, err := charge.Decode(dead)
			require.ErrorIs(w, err, chanqjobs.ErrKind)
			body, err := welcome.Decode(dead)
			got <- body
			return err
		}).Run)
		require.Equal(w, mail{7, "ann"}, testdb.Receive(w, got, "the dead job"))
	})
}

// A function that has failed for five messages hangs when it is called again, or ends its goroutine.
func TestANewDeathDoesNotWaitForRepeatedOnes(t *testing.T) {
	testdb.OnEach(t, inBubbles, func(w *testdb.World) {
		w.Within(100 * time.Hour)
		q := jobsOf(w, "jobs", chanq.Config{History: chanq.HistoryOff})
		migrateNotices(w)
		bad := map[chanq.ID]int{}
		for _, id := range die(w, q, note.New("1"), note.New("2"), note.New("3"), note.New("4"), note.New("5")) {
			bad[id] = 0
		}
		var mu sync.Mutex
		_, db := w.Connect()
		raw := testdb.OpenOn[[]byte](w, db, "jobs", chanq.Config{History: chanq.HistoryOff})
		d := chanqjobs.NewDeaths(raw, func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
			mu.Lock()
			calls, is := bad[dead.ID]
			if is {
				bad[dead.ID]++
			}
			mu.Unlock()
			switch {
			case !is:
				return insertNotice(ctx, tx, q.Names(), dead)
			case calls%2 == 0 || w.Engine.Dialect.Traits().OneWriter: // a hanging one would exclude all others
				runtime.Goexit()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		d.Failed = func(error) {}
		run(w, d.Run)
		for n := range 20 {
			die(w, q, note.New("good"))
			time.Sleep(3 * time.Second)
			require.Len(w, notices(w, q.Names()), n+1)
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for id, calls := range bad {
			require.Greater(w, calls, 3, "%s is repeated", id)
		}
	})
}
