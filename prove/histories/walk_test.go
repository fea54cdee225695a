package histories

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// mishap is one way for an operation on the database to fail.
type mishap struct {
	name  string
	fault func(testdb.Engine) faultdb.Fault
	// ends reports that the connection breaks, so the mishap may strike the end of a transaction.
	ends    bool
	applied bool
	// hangs reports that the operation lasts until the statement timeout. A run then takes long, so
	// only every eighth operation is struck.
	hangs bool
	// lasts reports that repeating cannot help, so the caller gets the error.
	lasts bool
}

var mishaps = []mishap{
	{name: "CutBeforeItIsApplied", fault: func(e testdb.Engine) faultdb.Fault { return faultdb.Cut(e.Errors[sqlbatch.Unknown]) }, ends: true},
	{name: "CutAfterItWasApplied", fault: func(e testdb.Engine) faultdb.Fault { return faultdb.Cut(e.Errors[sqlbatch.Unknown]).Applied() }, applied: true, ends: true},
	{name: "CutAfterOneRow", fault: func(e testdb.Engine) faultdb.Fault { return faultdb.Cut(e.Errors[sqlbatch.Unknown]).AfterRows(1) }, applied: true, ends: true},
	{name: "RolledBack", fault: func(e testdb.Engine) faultdb.Fault { return faultdb.Fail(e.Errors[sqlbatch.RolledBack]) }},
	{name: "Refused", fault: func(e testdb.Engine) faultdb.Fault { return faultdb.Cut(e.Errors[sqlbatch.Refused]) }},
	{name: "Permanent", fault: func(e testdb.Engine) faultdb.Fault { return faultdb.Fail(e.Errors[sqlbatch.Permanent]) }, lasts: true},
	{name: "HangsBeforeItIsApplied", fault: func(testdb.Engine) faultdb.Fault { return faultdb.Hang() }, ends: true, hangs: true},
	{name: "HangsAfterItWasApplied", fault: func(testdb.Engine) faultdb.Fault { return faultdb.Hang().Applied() }, applied: true, ends: true, hangs: true},
}

// walkAll runs a fixed scenario of sends, claims, settles and shutdowns once per operation on the
// database, which fails in each of several ways. After each run it checks that no message is lost,
// none is redelivered after its confirmed ack, and all reported results are true. It strikes every
// stride'th operation, and ends with a run without a fault.
func walkAll(t *testing.T, e testdb.Engine, stride int) {
	e.Require(t)
	var all sync.WaitGroup // not t.Parallel: the runs mostly wait
	defer all.Wait()
	for n, m := range mishaps {
		all.Go(func() {
			t.Run(m.name, func(t *testing.T) { walkThrough(t, e, m, n, stride) })
		})
	}
}

func walkThrough(t *testing.T, e testdb.Engine, m mishap, first, stride int) {
	if m.hangs {
		stride *= 8
	}
	struck := map[string]bool{}
	for i := 7 * first % stride; ; i += stride {
		w := playWalk(t, e, m, aim{number: i})
		if !w.wasHit() {
			break
		}
		struck[w.hitText] = true
	}
	if stride == 1 {
		strikeRest(t, e, m, struck)
	}
}

// playWalk runs the scenario once: in a bubble of its own if the engine has bubbles, otherwise as a
// subtest. Both drop the run's database before the next run.
func playWalk(t *testing.T, e testdb.Engine, m mishap, a aim) (w *walk) {
	play := func(t *testing.T) {
		w = newWalk(t, e, m, a)
		w.scenario()
	}
	if e.Bubble {
		synctest.Test(t, play)
	} else {
		t.Run(fmt.Sprint(a.number), play)
	}
	return w
}

// aim selects the operation of a run that fails.
type aim struct {
	number int             // operations that pass before it
	only   map[string]bool // the first with one of these keys; nil is any
}

func (a aim) meets(key string, passed int) bool {
	return passed >= a.number && (a.only == nil || a.only[key])
}

// strikeRest strikes each statement of interest that was not struck: runs differ, so counting might
// skip a statement that occurs once per run. The text of some statements depends on the number of
// rows.
func strikeRest(t *testing.T, e testdb.Engine, m mishap, struck map[string]bool) {
	q := e.Dialect.Queue(sqlbatch.Names{Queue: workQueue})
	for name, build := range map[string]func([]sqlbatch.Row) sqlbatch.Statement{
		"enqueue": q.Enqueue, "enqueue with keys": q.EnqueueNew,
		"find": func([]sqlbatch.Row) sqlbatch.Statement { return q.Find(nil, nil) },
		"claim": func([]sqlbatch.Row) sqlbatch.Statement {
			return q.Claim(sqlbatch.ClaimParams{Rows: 1, Inline: sqlbatch.MaxBody})
		},
		"ack": func([]sqlbatch.Row) sqlbatch.Statement { return q.Ack(nil) }, "nack": func([]sqlbatch.Row) sqlbatch.Statement { return q.Nack(nil) },
		"release":     func([]sqlbatch.Row) sqlbatch.Statement { return q.Release(nil) },
		"dead-letter": func([]sqlbatch.Row) sqlbatch.Statement { return q.DeadLetter(nil) },
		"extend":      func([]sqlbatch.Row) sqlbatch.Statement { return q.Extend([16]byte{}, nil, time.Second) },
	} {
		met, keys := false, map[string]bool{}
		for rows := 1; rows <= 16; rows *= 2 {
			st := build(make([]sqlbatch.Row, rows))
			key := statementKey(st.Text, st.Args)
			keys[key], met = true, met || struck[key]
		}
		if !met {
			w := playWalk(t, e, m, aim{only: keys})
			require.True(t, w.wasHit(), "no run has struck the statement to %s", name)
		}
	}
}

// statementKey identifies a statement by its text, or by the first argument of a procedure that
// executes it.
func statementKey(text string, args []any) string {
	if text == "sp_executesql" && len(args) > 0 {
		return fmt.Sprint(args[0])
	}
	return text
}

// The queues of the scenario.
const (
	workQueue  = "work"
	pipedQueue = "piped"
	outQueue   = "out"
)

// walk is one run of the scenario. One operation of db fails; observer reads the actual state.
type walk struct {
	*testing.T
	db, observer      *sql.DB
	work, piped, out  *chanq.Queue[string] // on db
	truth, trueResult *chanq.Queue[string] // work and out on observer
	clock             clock
	mishap            mishap
	aim               aim
	limit             context.Context // context of the run

	mu           sync.Mutex
	hit, hitText string // the operation that failed
	lostFirst    bool   // it was the first claim, which took all messages

	stored    map[chanq.ID]string // bodies, as reported to senders
	doubtful  map[chanq.ID]bool   // might be stored: the sender gave up
	settledAs map[chanq.ID]chanqadmin.State
	visits    map[string]int
	effects   map[chanq.ID]bool // acked in a transaction with a row of the caller
}

// acked is the state of a settled message that is deleted.
const acked chanqadmin.State = "acked"

// unowned hides Close, so that closing one of two *sql.DB does not drop the database.
type unowned struct{ driver.Connector }

func newWalk(t *testing.T, e testdb.Engine, m mishap, a aim) *walk {
	address := e.Create(t)
	inner, err := e.Connect(address)
	require.NoError(t, err)
	observed := inner
	if e.Tables != nil {
		observed, err = e.Tables(address)
		require.NoError(t, err)
	}
	w := &walk{
		T: t, mishap: m, aim: a, observer: sql.OpenDB(observed),
		stored: map[chanq.ID]string{}, doubtful: map[chanq.ID]bool{}, settledAs: map[chanq.ID]chanqadmin.State{},
		visits: map[string]int{}, effects: map[chanq.ID]bool{},
	}
	w.limit = w.within(3 * testdb.Patience)
	cfg := chanq.Config{Spec: chanq.Spec{MaxAttempts: 50}, StatementTimeout: w.statement()}
	for _, name := range []string{workQueue, pipedQueue, outQueue} {
		require.NoError(t, chanq.Migrate(w.soon(), w.observer, name, cfg))
	}
	_, err = w.observer.ExecContext(w.soon(), `CREATE TABLE effects (id varchar(36) NOT NULL PRIMARY KEY)`)
	require.NoError(t, err)
	faults := faultdb.New(unowned{inner})
	w.db = sql.OpenDB(faults)
	w.work, w.piped, w.out = testdb.OpenOn[string](w, w.db, workQueue, cfg), testdb.OpenOn[string](w, w.db, pipedQueue, cfg), testdb.OpenOn[string](w, w.db, outQueue, cfg)
	w.truth, w.trueResult = testdb.OpenOn[string](w, w.observer, workQueue, cfg), testdb.OpenOn[string](w, w.observer, outQueue, cfg)
	w.clock, err = newClock(w.observer, e.Dialect, workQueue)
	require.NoError(t, err)
	fault, passed := m.fault(e), 0
	claim := e.Dialect.Queue(sqlbatch.Names{Queue: workQueue}).Claim(sqlbatch.ClaimParams{Rows: 1, Inline: sqlbatch.MaxBody})
	claimKey, claims := statementKey(claim.Text, claim.Args), 0
	aside := consumerStatements(e)
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		w.mu.Lock()
		defer w.mu.Unlock()
		args := make([]any, len(op.Args))
		for i, a := range op.Args {
			args[i] = a.Value
		}
		key := statementKey(op.Text, args)
		if op.Kind == faultdb.Query && key == claimKey {
			claims++
		}
		if aside[key] {
			return faultdb.Fault{}
		}
		passed++
		if !a.meets(key, passed-1) || w.hit != "" || !m.ends && (op.Kind == faultdb.Commit || op.Kind == faultdb.Rollback) {
			return faultdb.Fault{}
		}
		w.hit, w.hitText = op.String(), key
		w.lostFirst = op.Kind == faultdb.Query && key == claimKey && claims == 1 && m.applied
		return fault
	})
	return w
}

// consumerStatements are neither struck nor counted: goroutines run them at any time, and the
// struck operation must not depend on that. Their outcomes do not affect what the walk checks.
func consumerStatements(e testdb.Engine) map[string]bool {
	keys := map[string]bool{}
	for _, name := range []string{workQueue, pipedQueue, outQueue} {
		q := e.Dialect.Queue(sqlbatch.Names{Queue: name})
		join, leave := q.Join(sqlbatch.Consumer{}), q.Leave([16]byte{})
		for _, st := range append(join.Prior, join, leave) {
			keys[statementKey(st.Text, st.Args)] = true
		}
	}
	return keys
}

// where identifies the run in messages.
func (w *walk) where() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hit == "" {
		return fmt.Sprintf("run %d, untouched so far", w.aim.number)
	}
	return fmt.Sprintf("run %d, %s: %s", w.aim.number, w.mishap.name, w.hit)
}

func (w *walk) wasHit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hit != ""
}

func (w *walk) firstClaimWasLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lostFirst
}

// soon returns a context for calls that must return by themselves.
func (w *walk) soon() context.Context { return w.within(testdb.Patience) }

// statement returns the statement timeout: shorter if a statement is made to hang, which has to
// end, but longer than other statements need on a busy machine.
func (w *walk) statement() time.Duration {
	if w.mishap.hangs {
		return 15 * time.Second
	}
	return testdb.Patience
}

// shortly returns a context for calls that last up to the statement timeout.
func (w *walk) shortly() context.Context { return w.within(w.statement()) }

func (w *walk) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	w.Cleanup(cancel)
	return ctx
}

func (w *walk) produce(q *chanq.Queue[string]) *chanq.Producer[string] {
	p, err := q.Producer(context.Background(), chanq.ProducerConfig{Linger: time.Millisecond})
	require.NoError(w, err)
	return p
}

func (w *walk) consume(q *chanq.Queue[string]) *chanq.Consumer[string] {
	c, err := q.Consume(context.Background(), chanq.ConsumerConfig{
		LeaseFor: leaseFor, MaxExtend: 24 * time.Hour,
		PollEvery: 20 * time.Millisecond,
		Backoff:   func(*chanq.Delivery, error) time.Duration { return 0 },
	})
	require.NoError(w, err)
	return c
}

// count compares the contents of the queues with all reported results.
func (w *walk) count() {
	there := map[chanq.ID]chanqadmin.Entry{}
	for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead} {
		entries, err := testdb.Peek(w.soon(), w.truth, s, 1000)
		require.NoError(w, err)
		for _, e := range entries {
			require.NotContains(w, there, e.ID, w.where())
			there[e.ID] = e
			require.True(w, w.stored[e.ID] != "" || w.doubtful[e.ID], "%s: %s is in the queue, but its send was reported as failed", w.where(), e.Body)
		}
	}
	for id, body := range w.stored {
		e, found := there[id]
		switch w.settledAs[id] {
		case acked:
			require.False(w, found, "%s: %s is in the queue after its ack", w.where(), body)
		case chanqadmin.StateDead:
			require.Equal(w, chanqadmin.StateDead, e.State, "%s: %s", w.where(), body)
		default:
			require.True(w, found, "%s: %s is lost", w.where(), body)
			require.NotEqual(w, chanqadmin.StateDead, e.State, "%s: %s", w.where(), body)
		}
	}
	rows, err := w.observer.QueryContext(w.soon(), `SELECT id FROM effects`)
	require.NoError(w, err)
	defer rows.Close()
	got := map[chanq.ID]bool{}
	for rows.Next() {
		var text string
		require.NoError(w, rows.Scan(&text))
		id, err := chanq.ParseID(text)
		require.NoError(w, err)
		got[id] = true
	}
	require.NoError(w, rows.Err())
	require.Equal(w, w.effects, got, "%s: rows that were written with an AckTx", w.where())
}

// requireUntouched requires what holds only in a run without a fault.
func (w *walk) requireUntouched() {
	entries, err := testdb.Peek(w.soon(), w.truth, chanqadmin.StateReady, 1000)
	require.NoError(w, err)
	left := map[string]bool{}
	for _, e := range entries {
		left[string(e.Body)] = true
		require.Zero(w, e.Attempts, "%s was released", e.Body)
	}
	require.Equal(w, []string{"left 1", "left 2"}, slices.Sorted(maps.Keys(left)))
}
