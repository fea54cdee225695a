package guarantees

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Statements that exceed the per-attempt timeout, for example because they move a body of hundreds of megabytes.
var slowStatements = []test{
	{"G12_SettlesThatTakeLongDelayNoOtherAndAreStored", slowSettles},
	{"G12_SettlesThatFailAloneDelayNoOther", failingSettles},
	{"ASettleThatIsIsolatedIsReported", isolatedSettle},
	{"G12_ASettleIsStoredThoughItsExtensionsTakeLong", slowSettleAndExtensions},
	{"G12_ShutdownIsBoundedThoughASettleTakesLong", slowSettleAtShutdown},
	{"G12_AnExtensionThatTakesLongLosesNoOtherLease", slowExtension},
	{"G12_ExtensionsThatFailLoseNoOtherLease", failingExtensions},
}

// slowTry is the per-attempt timeout of settles in these tests, and slowTime the duration of a slow settle.
const (
	slowTry  = time.Second
	slowTime = 5 * slowTry / 2
)

func slowConfig() chanq.ConsumerConfig {
	return chanq.ConsumerConfig{LeaseFor: 5 * steadyLease}
}

func deadLetters(op faultdb.Op, q sqlbatch.Queue) bool {
	for _, st := range []sqlbatch.Statement{q.DeadLetter(nil), q.SkipLocked().DeadLetter(nil)} {
		if testdb.Runs(op, st) || len(st.Prior) > 0 && testdb.Runs(op, st.Prior[0]) {
			return true
		}
	}
	return false
}

func slowSettles(w *world) {
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks(), StatementTimeout: slowTry})
	testdb.Send(w, q, testdb.Texts(numbers(22)...)...)
	c := testdb.Start(w, q, slowConfig())
	leases := testdb.Take(w, c, 22)
	delivered := w.again(q)
	st := w.Statements("work")
	stuck := make(chan struct{})
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !deadLetters(op, st) {
			return faultdb.Fault{}
		}
		return faultdb.Hold(stuck)
	})
	// One after another, so that they are in two batches.
	for _, l := range leases[:2] {
		require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
		w.Eventually("its batch is being written", func() bool { return c.Stats().Settling == 0 })
	}
	for _, l := range leases[2:] {
		require.NoError(w, l.Ack())
	}
	waits(w, leases[2:])
	require.Equal(w, chanqadmin.Stats{Leased: 2}, testdb.Counted(w, q), "the others are settled")

	// From here on they succeed, after a slow attempt.
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !deadLetters(op, st) {
			return faultdb.Fault{}
		}
		done := make(chan struct{})
		time.AfterFunc(slowTime, func() { close(done) })
		return faultdb.Hold(done)
	})
	close(stuck) // at most one of them is running
	waits(w, leases[:2])
	w.Faults.Inject(nil)
	require.NoError(w, c.Flush(w.Soon()))
	require.Equal(w, chanqadmin.Stats{Dead: 2}, testdb.Counted(w, q))
	require.Empty(w, delivered())
	require.Empty(w, lost.but(chanq.ID{}))
	require.NoError(w, c.Shutdown(w.Soon()))
}

// failingSettles makes each statement that moves a message to the dead-letter table fail, as with a damaged table or a full disk.
func failingSettles(w *world) {
	for i, class := range []sqlbatch.Class{sqlbatch.Refused, sqlbatch.RolledBack, sqlbatch.Unknown} {
		var lost losses
		name := string(rune('a' + i))
		q := w.Queue(name, chanq.Config{Hooks: lost.hooks()})
		testdb.Send(w, q, testdb.Texts(numbers(23)...)...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * steadyLease})
		leases := testdb.Take(w, c, 23)
		delivered := w.again(q)
		st, fails := w.Statements(name), faultdb.Fail(w.Failure(class))
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if deadLetters(op, st) {
				return fails
			}
			return faultdb.Fault{}
		})
		for _, l := range leases[:3] { // more than can run at once
			require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
			pass(2 * steadyLease / 5) // so that they are in several batches
		}
		for _, l := range leases[3:] {
			require.NoError(w, l.Ack())
		}
		waits(w, leases[3:])
		require.Equal(w, chanqadmin.Stats{Leased: 3}, testdb.Counted(w, q), "%v: the others are settled", class)
		w.Faults.Inject(nil)
		waits(w, leases[:3])
		require.Equal(w, chanqadmin.Stats{Dead: 3}, testdb.Counted(w, q))
		require.Empty(w, delivered())
		require.Empty(w, lost.but(chanq.ID{}))
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

func isolatedSettle(w *world) {
	var mu sync.Mutex
	var events []chanq.IsolatedEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Isolated: func(e chanq.IsolatedEvent) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}})
	testdb.Send(w, q, testdb.Texts(numbers(3)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * steadyLease})
	leases := testdb.Take(w, c, 3)
	st, fails := w.Statements("work"), faultdb.Fail(w.Failure(sqlbatch.Refused))
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if deadLetters(op, st) {
			return fails
		}
		return faultdb.Fault{}
	})
	require.NoError(w, leases[0].Nack(chanq.DeadLetter(nil)))
	for _, l := range leases[1:] {
		require.NoError(w, l.Ack())
	}
	waits(w, leases[1:])
	w.Eventually("it is isolated", func() bool { return c.Stats().Isolated == 1 })
	require.Equal(w, 1, c.Stats().Settling)
	w.Faults.Inject(nil)
	waits(w, leases[:1])
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Zero(w, c.Stats().Isolated)
	require.Len(w, events, 2)
	require.Error(w, events[0].Err)
	events[0].Err = nil
	require.Equal(w, []chanq.IsolatedEvent{
		{Queue: "work", Part: "consumer", Items: 1, Change: 1}, {Queue: "work", Part: "consumer", Change: -1},
	}, events)
}

// slowSettleAndExtensions is for engines with one writer, on which a row that takes long to settle also takes long to extend. Each attempt
// of the settle still has more time.
func slowSettleAndExtensions(w *world) {
	if !w.oneWriter() {
		w.Skip("on other engines a slow extension means that the database is unavailable")
	}
	q := w.Queue("work", chanq.Config{StatementTimeout: slowTry})
	testdb.Send(w, q, testdb.Texts("huge")...)
	cfg := slowConfig()
	cfg.LeaseFor = time.Hour // the only extensions are those for the attempts
	c := testdb.Start(w, q, cfg)
	l := testdb.Take(w, c, 1)[0]
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case extends(op, st):
			return faultdb.Hang()
		case deadLetters(op, st):
			done := make(chan struct{})
			time.AfterFunc(slowTime, func() { close(done) })
			return faultdb.Hold(done)
		}
		return faultdb.Fault{}
	})
	require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
	waits(w, []*chanq.Lease[string]{l})
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
	w.Faults.Inject(nil)
	require.NoError(w, c.Shutdown(w.Soon()))
}

func slowSettleAtShutdown(w *world) {
	q := w.Queue("work", chanq.Config{StatementTimeout: slowTry})
	testdb.Send(w, q, testdb.Texts("huge")...)
	c := testdb.Start(w, q, slowConfig())
	l := testdb.Take(w, c, 1)[0]
	st := w.Statements("work")
	tries, apart := 0, make(chan struct{})
	var once sync.Once
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !deadLetters(op, st) {
			return faultdb.Fault{}
		}
		if tries++; tries == 3 {
			once.Do(func() { close(apart) })
		}
		return faultdb.Hang()
	})
	require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
	w.within("the settle is isolated", apart)
	ctx, cancel := context.WithTimeout(context.Background(), slowTry)
	defer cancel()
	require.ErrorContains(w, c.Shutdown(ctx), "settles not confirmed: 1")
	var op *chanq.OpError
	require.ErrorAs(w, l.Wait(w.Soon()), &op)
	require.True(w, op.Unknown)
	require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end")
}

// names reports whether an argument of a statement contains the ID of a message.
func names(op faultdb.Op, id chanq.ID) bool {
	for _, arg := range op.Args {
		switch v := arg.Value.(type) {
		case []byte:
			if bytes.Contains(v, id[:]) {
				return true
			}
		case string:
			if strings.Contains(v, hex.EncodeToString(id[:])) {
				return true
			}
		}
	}
	return false
}

// slowExtension: SQLite rewrites the whole row, so other extensions in the same statement would take as long. Two slow extensions must also
// not cost another large message its lease.
func slowExtension(w *world) {
	var lost losses
	q := w.Queue("work", chanq.Config{Hooks: lost.hooks(), Spec: chanq.Spec{MaxBody: 8 << 20}})
	body := strings.Repeat("x", 5<<20)
	huge := testdb.Send(w, q, testdb.Texts(body, body)...)
	testdb.Send(w, q, testdb.Texts(body[:4<<20])...)
	testdb.Send(w, q, testdb.Texts(numbers(20)...)...)
	st := w.Statements("work")
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: troubleLease})
	leases := testdb.Take(w, c, 23)
	var struck atomic.Bool
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !extends(op, st) || !names(op, huge[0]) && !names(op, huge[1]) {
			return faultdb.Fault{}
		}
		struck.Store(true)
		return faultdb.Hang()
	})
	pass(2 * troubleLease)
	require.True(w, struck.Load())
	for _, l := range leases[2:] {
		require.NoError(w, l.Ack())
	}
	waits(w, leases[2:])
	require.Empty(w, lost.but(huge...))
}

// failingExtensions makes each statement that extends one of ten leases fail; the ten are spread among the others.
func failingExtensions(w *world) {
	for i, class := range []sqlbatch.Class{sqlbatch.Refused, sqlbatch.Unknown, sqlbatch.RolledBack, sqlbatch.Refused} {
		var lost losses
		name, cfg := string(rune('a'+i)), chanq.Config{}
		ms := testdb.Texts(numbers(40)...)
		if i == 3 {
			cfg = orderedConfig
			for i := range ms {
				ms[i].Key = ms[i].Body
			}
		}
		cfg.Hooks = lost.hooks()
		q := w.Queue(name, cfg)
		ids := testdb.Send(w, q, ms...)
		st, fails := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: name, Slots: cfg.Slots}), faultdb.Fail(w.Failure(class))
		c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * steadyLease})
		var bad []chanq.ID
		for i := 0; i < len(ids); i += 4 {
			bad = append(bad, ids[i])
		}
		var failed atomic.Int64
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if extends(op, st) && slices.ContainsFunc(bad, func(id chanq.ID) bool { return names(op, id) }) {
				failed.Add(1)
				return fails
			}
			return faultdb.Fault{}
		})
		leases := testdb.Take(w, c, 40)
		pass(8 * steadyLease)
		w.Faults.Inject(nil)
		require.Positive(w, failed.Load(), "%v", class)
		require.Empty(w, lost.but(bad...), "%v", class)
		for _, l := range leases {
			if !slices.Contains(bad, l.ID) {
				require.NoError(w, l.Ack())
				require.NoError(w, l.Wait(w.Soon()))
			}
		}
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}
