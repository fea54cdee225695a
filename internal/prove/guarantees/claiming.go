package guarantees

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Claims whose answer does not arrive in time, or cannot be read.
var claiming = []test{
	{"G12_AClaimTooLargeForItsNetworkShrinksAndGrowsAgain", shrinkingClaims},
	{"G12_AMessageThatDoesNotArriveInTimeDelaysItselfOnly", func(w *world) { unreadable(w, faultdb.Hang(), "chanq: could not be read within 500ms") }},
	{"G12_AMessageThatTheDriverCannotReadDelaysItselfOnly", func(w *world) {
		unreadable(w, faultdb.Fail(w.failure(sqlbatch.BadRow)), "chanq: could not be read: ")
	}},
	{"G12_AnUnreadableMessageIsDeadWhenItsAttemptsAreSpent", unreadableEnds},
	{"AnOutageCountsNoAttempts", outageCountsNothing},
	{"AClaimIsGivenUpWhenItsLeasesWouldHaveEnded", claimEndsWithItsLease},
	{"G11_TheFirstClaimKeepsToPrefetchBytes", firstClaim},
}

// asked is for how many messages a claim asks.
func asked(op faultdb.Op) int {
	for _, arg := range op.Args {
		switch n := arg.Value.(type) {
		case int64:
			return int(n) // the first
		case int32:
			return int(n)
		}
	}
	return 0
}

// claimSizes notes what claims ask for.
type claimSizes struct {
	mu    sync.Mutex
	sizes []int
}

func (s *claimSizes) note(op faultdb.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := asked(op)
	s.sizes = append(s.sizes, n)
	return n
}

func (s *claimSizes) all() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

func shrinkingClaims(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts(numbers(30)...)...)
	st := w.statements("work")
	for _, fault := range []faultdb.Fault{faultdb.Hang(), faultdb.Fail(w.failure(sqlbatch.BadRow))} {
		send(w, q, texts(numbers(20)...)...)
		var sizes claimSizes
		w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) && sizes.note(op) > 1 {
				return fault
			}
			return faultdb.Fault{}
		})
		c := start(w, q, chanq.ConsumerConfig{StatementTimeout: 300 * time.Millisecond})
		for _, l := range take(w, c, 5) {
			require.Equal(w, 1, l.Attempt)
			require.NoError(w, l.Ack())
		}
		require.Contains(w, fmt.Sprint(sizes.all()), "[16 8 4 2 1 ")
		w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) {
				sizes.note(op)
			}
			return faultdb.Fault{}
		})
		for _, l := range take(w, c, 15) {
			require.NoError(w, l.Ack())
		}
		w.eventually("claims grow again", func() bool {
			send(w, q, texts("more")...)
			for _, l := range take(w, c, 1) {
				require.NoError(w, l.Ack())
			}
			all := sizes.all()
			return all[len(all)-1] >= 16
		})
		require.NoError(w, c.Shutdown(w.soon()))
	}
}

// unreadable has the first of three messages fail every claim that is not blind.
func unreadable(w *world, fault faultdb.Fault, why string) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, texts("unreadable", "a", "b")...)[0]
	st := w.statements("work")
	var mu sync.Mutex
	blind := 0
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case blindClaims(op, st):
			blind++
		case claims(op, st) && blind == 0:
			return fault
		}
		return faultdb.Fault{}
	})
	var attempts []int
	c := start(w, q, chanq.ConsumerConfig{StatementTimeout: 500 * time.Millisecond, Backoff: func(attempt int) time.Duration {
		attempts = append(attempts, attempt)
		return time.Hour
	}})
	require.Equal(w, []string{"a", "b"}, bodies(take(w, c, 2)))
	w.eventually("it waits for its next attempt", func() bool { return get(w, q, id).State == chanq.StateScheduled })
	e := get(w, q, id)
	require.Equal(w, 1, e.Attempts)
	require.True(w, strings.HasPrefix(e.LastError, why), e.LastError)
	require.Equal(w, []byte("unreadable"), e.Body)
	require.Empty(w, c.C())
	mu.Lock()
	defer mu.Unlock()
	require.Equal(w, 1, blind, "one message is read without its contents, once")
	require.Equal(w, []int{1}, attempts)
}

func unreadableEnds(w *world) {
	q := w.queue("work", chanq.Config{MaxAttempts: 2})
	id := send(w, q, texts("unreadable")...)[0]
	st := w.statements("work")
	bad := w.failure(sqlbatch.BadRow)
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, st) && !blindClaims(op, st) {
			return faultdb.Fail(bad)
		}
		return faultdb.Fault{}
	})
	start(w, q, chanq.ConsumerConfig{Backoff: func(int) time.Duration { return time.Millisecond }})
	w.eventually("it is dead", func() bool { return stats(w, q).Dead == 1 })
	e := get(w, q, id)
	require.Equal(w, 2, e.Attempts)
	require.Contains(w, e.LastError, "could not be read")
}

func outageCountsNothing(w *world) {
	q := w.queue("work", chanq.Config{})
	id := send(w, q, texts("innocent")...)[0]
	st := w.statements("work")
	broken := w.failure(sqlbatch.Unknown)
	var mu sync.Mutex
	ones, blind := 0, 0
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case blindClaims(op, st):
			blind++
			return faultdb.Hang()
		case claims(op, st):
			if asked(op) == 1 {
				ones++
			}
			return faultdb.Hang()
		case runs(op, st.NextDue()):
			return faultdb.Cut(broken)
		}
		return faultdb.Fault{}
	})
	c := start(w, q, chanq.ConsumerConfig{Prefetch: 1, StatementTimeout: 50 * time.Millisecond})
	w.eventually("claims of one failed again and again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ones >= 5
	})
	w.faults.Inject(nil)
	l := take(w, c, 1)[0]
	require.Equal(w, 1, l.Attempt)
	mu.Lock()
	defer mu.Unlock()
	require.Zero(w, blind)
	require.Empty(w, get(w, q, id).LastError)
}

func claimEndsWithItsLease(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("a")...)
	st := w.statements("work")
	w.strike(faultdb.Hang(), func(op faultdb.Op) bool { return claims(op, st) })
	began := time.Now()
	c := start(w, q, chanq.ConsumerConfig{LeaseFor: shortLease, StatementTimeout: time.Hour})
	require.Equal(w, 1, take(w, c, 1)[0].Attempt)
	require.Less(w, time.Since(began), patience/2)
}

func firstClaim(w *world) {
	for maxBody, want := range map[int]int{10_000: 5, 1 << 20: 1, 1000: 16} {
		q := w.queue("work", chanq.Config{MaxBody: maxBody})
		st := w.statements("work")
		var sizes claimSizes
		w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) {
				sizes.note(op)
			}
			return faultdb.Fault{}
		})
		c := start(w, q, chanq.ConsumerConfig{PrefetchBytes: 50_000})
		w.eventually("it has claimed", func() bool { return len(sizes.all()) > 0 })
		require.Equal(w, want, sizes.all()[0], fmt.Sprint(maxBody))
		require.NoError(w, c.Shutdown(context.Background()))
	}
}
