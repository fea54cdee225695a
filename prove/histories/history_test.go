package histories

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// All delays and leases are whole hours, and a jump of the clock is a minute longer. The duration of a history therefore changes nothing: a
// message that is not due yet is not due for minutes.
const jump = time.Hour + time.Minute

// The numbers are small, so that steps affect the same messages.
const (
	maxAttempts = 3
	maxLive     = 14 // respected by senders; a redrive may exceed it
	producers   = 2
	chosenIDs   = 3
)

// run runs random histories on an engine and compares each with the model.
func run(t *testing.T, e testdb.Engine) {
	e.Require(t)
	t.Parallel()
	for _, retain := range []time.Duration{0, 24 * time.Hour} {
		t.Run(fmt.Sprintf("Retain=%v", retain), func(t *testing.T) {
			t.Parallel()
			testdb.InBubble(t, e.Bubble, func(t *testing.T) { check(t, e, retain) })
		})
	}
}

func check(t *testing.T, e testdb.Engine, retain time.Duration) {
	address := e.Create(t)
	served := &sessions{}
	db := sql.OpenDB(served.connector(t, e, address))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	cfg := chanq.Config{Spec: chanq.Spec{MaxAttempts: maxAttempts, Retain: retain}, MaxCrashes: maxCrashes}
	tables := db
	if e.Tables != nil {
		connector, err := e.Tables(address)
		require.NoError(t, err)
		tables = sql.OpenDB(connector)
		t.Cleanup(func() { require.NoError(t, tables.Close()) })
	}
	require.NoError(t, chanq.Migrate(t.Context(), tables, "model", cfg))
	time, err := newClock(db, e.Dialect, "model")
	require.NoError(t, err)
	rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // rapid reads the deadline of a *testing.T, which does not exist in a bubble
		h := begin(t, db, cfg, time, served, e.Errors)
		defer h.end()
		t.Repeat(map[string]func(*rapid.T){
			"":     func(*rapid.T) { h.compare() },
			"step": func(t *rapid.T) { h.step(steps.Draw(t, "step")) },
		})
	})
}

// step is one action of a history. It runs completely on the queue and on the model, and compares their results.
type step interface {
	fmt.Stringer
	run(*history)
}

// history is one run: the queue, the model, and the users of the queue.
type history struct {
	*rapid.T
	db        *sql.DB
	cfg       chanq.Config
	clock     clock
	sessions  *sessions
	errors    map[sqlbatch.Class]error // errors of the engine
	queue     *chanq.Queue[string]
	model     *queueModel
	producers [producers]*chanq.Producer[string]
	consumers []*consumer
	started   int // consumers so far
	leases    []*lease
	ids       [chosenIDs]chanq.ID
	fences    map[chanq.ID]map[int64]int // the turn of each fence
	messages  int                        // created so far; numbers their bodies
	count     int                        // number of steps
	ran       string
}

// consumer is a consumer that has stopped claiming and holds leases.
type consumer struct {
	*chanq.Consumer[string]
	name string
}

func begin(t *rapid.T, db *sql.DB, cfg chanq.Config, c clock, served *sessions, errors map[sqlbatch.Class]error) *history {
	h := &history{T: t, db: db, cfg: cfg, clock: c, sessions: served, errors: errors, fences: map[chanq.ID]map[int64]int{}, model: newModel(cfg.MaxAttempts, cfg.Retain > 0, c.dialect.Name() == "sqlserver")}
	h.model.now = c.now(t)
	var err error
	h.queue, err = chanq.Open[string](context.Background(), db, "model", cfg)
	require.NoError(t, err)
	for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone} {
		_, err := testdb.Purge(h.soon(), h.queue, s)
		require.NoError(t, err)
	}
	require.NoError(t, testdb.Admin(h.queue).Resume(h.soon(), chanqadmin.Change{}))
	for i := range h.producers {
		h.producers[i] = h.produce()
	}
	for i := range h.ids {
		h.ids[i] = chanq.NewID()
	}
	return h
}

// end closes all producers and consumers, whatever state they are in.
func (h *history) end() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range h.consumers {
		_ = c.Shutdown(gone)     // leases that the history never settled
		_ = c.Shutdown(h.soon()) // waits for operations that the driver is still executing
	}
	for _, p := range h.producers {
		_ = p.Close(h.soon()) // nothing is left, unless the history failed
	}
	h.sessions.settle(h, h.db)
}

func (h *history) produce() *chanq.Producer[string] {
	p, err := h.queue.Producer(context.Background(), chanq.ProducerConfig{Linger: time.Microsecond})
	require.NoError(h, err)
	return p
}

// step runs a step. Every row is compared afterwards.
func (h *history) step(s step) {
	h.count++
	h.ran = fmt.Sprintf("step %d, %v", h.count, s)
	h.Logf("%2d  %v", h.count, s)
	// Steps must not share a millisecond, as all would in a bubble: Purge and Redrive skip messages that changed in their own millisecond.
	time.Sleep(2 * time.Millisecond)
	h.model.now = h.clock.now(h)
	s.run(h)
}

// note adds an observation of a step to the printed history.
func (h *history) note(format string, args ...any) {
	h.Logf("      "+format, args...)
}

// soon returns a context for calls that must return.
func (h *history) soon() context.Context { return testdb.Soon(h) }

// eventually waits for a condition that must become true.
func (h *history) eventually(what string, is func() bool) {
	testdb.Eventually(h, what+", "+h.ran, is)
}

// compare compares every row of the queue, and its counts, with the model.
func (h *history) compare() {
	at := h.clock.now(h)
	var want, got chanqadmin.Stats
	counts := map[chanqadmin.State]*int{
		chanqadmin.StateReady: &want.Ready, chanqadmin.StateScheduled: &want.Scheduled, chanqadmin.StateLeased: &want.Leased,
		chanqadmin.StateDead: &want.Dead, chanqadmin.StateDone: &want.Done,
	}
	seen := map[chanq.ID]bool{}
	elapsed := at - h.model.now
	h.model.now = at
	for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased} {
		entries := h.peek(s)
		for _, e := range entries {
			h.compareEntry(e, h.model.live[e.ID], elapsed)
			seen[e.ID] = true
		}
		// The times are known now, and therefore the state and the order.
		list := h.model.in(s)
		*counts[s] = len(list)
		require.Equal(h, listed(list), entryBodies(entries), "%s: the %s messages and their order", h.ran, s)
	}
	lapsed := h.clock.lapsed(h)
	for id, m := range h.model.live {
		require.True(h, seen[id], "%s: message %s is gone", h.ran, m.body)
		require.Equal(h, m.lapses, lapsed[id], "%s: expired leases in a row of %s", h.ran, m.body)
	}
	for _, s := range []chanqadmin.State{chanqadmin.StateDead, chanqadmin.StateDone} {
		entries := h.peek(s)
		for _, e := range entries {
			h.compareEntry(e, h.model.endedAs(s, e), elapsed)
		}
		list := h.model.ended(s)
		slices.Reverse(list)
		*counts[s] = len(list)
		require.Equal(h, listed(list), entryBodies(entries), "%s: the %s messages, latest first", h.ran, s)
	}
	got, err := testdb.Admin(h.queue).Stats(h.soon())
	require.NoError(h, err)
	want.Limit, want.Paused = got.Limit, h.model.paused
	// Ready messages of each priority are in the order of their due times.
	var oldest int64
	for _, m := range h.model.in(chanqadmin.StateReady) {
		oldest = max(oldest, at-m.due.ms)
	}
	require.GreaterOrEqual(h, got.OldestReady.Milliseconds(), oldest, h.ran)
	require.Less(h, got.OldestReady.Milliseconds(), oldest+testdb.Patience.Milliseconds(), h.ran)
	got.OldestReady = 0
	require.Equal(h, want, got, "%s: Stats", h.ran)
	for _, c := range h.consumers {
		held, gone := 0, 0 // the consumer learns within a second that a message was cancelled
		for _, l := range h.leases {
			switch {
			case l.consumer != c || l.state != holding:
			case h.model.held(l.ID, l.turn) == nil:
				gone++
			default:
				held++
			}
		}
		got := c.Stats().Held
		require.True(h, held <= got && got <= held+gone, "%s: %d leases held by %s, of %d and %d whose messages are gone", h.ran, got, c.name, held, gone)
	}
}

func (h *history) peek(s chanqadmin.State) []chanqadmin.Entry {
	entries, err := testdb.Peek(h.soon(), h.queue, s, 100)
	require.NoError(h, err)
	return entries
}

// compareEntry compares a row with its message. It takes over times that the step has set, if they are possible.
func (h *history) compareEntry(e chanqadmin.Entry, m *message, elapsed int64) {
	require.NotNil(h, m, "%s: message %s is unexpectedly %s", h.ran, e.Body, e.State)
	learn := func(what string, t *moment, got time.Time) {
		if !t.exact {
			require.GreaterOrEqual(h, got.UnixMilli(), t.ms, "%s: %s of %s", h.ran, what, m.body)
			require.LessOrEqual(h, got.UnixMilli(), t.ms+elapsed, "%s: %s of %s", h.ran, what, m.body)
			*t = moment{got.UnixMilli(), true}
		}
	}
	learn("time of sending", &m.enqueued, e.EnqueuedAt)
	want := chanqadmin.Entry{
		ID: m.id, State: e.State, Priority: m.priority, Attempts: m.attempts, Fence: e.Fence,
		DedupKey: m.key, Consumer: e.Consumer, LeasedBy: e.LeasedBy, HeldSince: e.HeldSince, History: e.History, LastError: m.err, Body: []byte(m.body), Size: len(m.body),
	}
	switch {
	case e.State == chanqadmin.StateDead || e.State == chanqadmin.StateDone:
		learn("end", &m.ended, e.EndedAt)
		want.EndedAt = time.UnixMilli(m.ended.ms)
	case m.leasedBy != "":
		learn("end of the lease", &m.lease, e.LeaseUntil)
		want.LeaseUntil = time.UnixMilli(m.lease.ms)
		fallthrough
	default:
		learn("due time", &m.due, e.DueAt)
		want.DueAt = time.UnixMilli(m.due.ms)
	}
	if m.expires.ms > 0 {
		learn("expiry", &m.expires, e.ExpiresAt)
	}
	h.learnFence(m, e.Fence)
	want.EnqueuedAt = time.UnixMilli(m.enqueued.ms)
	if m.expires.ms > 0 {
		want.ExpiresAt = time.UnixMilli(m.expires.ms)
	}
	require.Equal(h, m.leasedBy != "", e.Consumer != chanq.ID{}, "%s: message %s has a holder", h.ran, m.body)
	if start, open := strings.CutSuffix(m.err, "…"); open && strings.HasPrefix(e.LastError, start) {
		want.LastError = e.LastError
	}
	// prove/guarantees tests the values of cause and fingerprint. Here a dead message has a cause and loses it when it is redriven.
	require.Equal(h, want.State == chanqadmin.StateDead, e.Cause != 0, "%s: message %s has a cause", h.ran, m.body)
	require.Equal(h, want.State == chanqadmin.StateDead && e.LastError == "expired", e.Cause == chanq.CauseExpired, "%s: message %s", h.ran, m.body)
	want.Cause, want.Fingerprint = e.Cause, e.Fingerprint
	require.Equal(h, want, e, "%s: message %s", h.ran, m.body)
}

// learnFence requires that the fence of a row does not change during a turn, then grows, and that the ID never had it before, including
// earlier messages with that ID.
func (h *history) learnFence(m *message, fence int64) {
	if m.fenced == m.turn {
		require.Equal(h, m.fence, fence, "%s: fence of %s", h.ran, m.body)
		return
	}
	require.Greater(h, fence, m.fence, "%s: fence of %s", h.ran, m.body)
	given := h.fences[m.id]
	if given == nil {
		given = map[int64]int{}
		h.fences[m.id] = given
	}
	if turn, known := given[fence]; known {
		require.Equal(h, turn, m.turn, "%s: the ID of %s had fence %d before", h.ran, m.body, fence)
	}
	given[fence], m.fence, m.fenced = m.turn, fence, m.turn
}

func listed(list []*message) []string {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.body
	}
	return names
}

func entryBodies(list []chanqadmin.Entry) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = string(e.Body)
	}
	return names
}
