package guarantees

import (
	"bytes"
	"encoding/hex"
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
	{"ASettleThatIsIsolatedIsReported", isolatedSettle},
	{"G12_ASettleIsStoredThoughItsExtensionsTakeLong", slowSettleAndExtensions},
	{"G12_AnExtensionThatTakesLongLosesNoOtherLease", slowExtension},
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
