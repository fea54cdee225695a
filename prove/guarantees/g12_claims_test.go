package guarantees

import (
	"context"
	"database/sql/driver"
	"fmt"
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

// Claims whose response does not arrive in time or cannot be read.
var claiming = []test{
	{"AConsumerThatSkippedALockedRowPollsAgainSoon", lockedMeanwhile},
	{"G12_AClaimTooLargeForItsNetworkShrinksAndGrowsAgain", shrinkingClaims},
	{"G12_AMessageThatDoesNotArriveInTimeDelaysItselfOnly", func(w *world) {
		timeout := testdb.Slowness * 500 * time.Millisecond
		if !w.Engine.Bubble {
			timeout *= 8
		}
		unreadable(w, timeout, faultdb.Hang(), fmt.Sprint("chanq: could not be read within ", timeout))
	}},
	{"G12_AMessageThatTheDriverCannotReadDelaysItselfOnly", func(w *world) {
		unreadable(w, 0, faultdb.Fail(w.Failure(sqlbatch.BadRow)), "chanq: could not be read: ")
	}},
	{"G12_AMessageWhoseReadsAreRefusedDelaysItselfOnly", func(w *world) {
		unreadable(w, 0, faultdb.Fail(w.Failure(sqlbatch.Refused)), "chanq: could not be read: ")
	}},
	{"G12_AMessageWhoseReadsBreakTheConnectionDelaysItselfOnly", func(w *world) { unreadable(w, 0, w.Broken(false), "chanq: could not be read: ") }},
	{"G12_MessagesOvertakeOneWhoseContentsDoNotArrive", overtaken},
	{"G12_AMessageThatMakesClaimsHangDelaysItselfOnly", shortClaims},
	{"G12_AnUnreadableMessageIsDeadLetteredAfterMaxAttempts", unreadableEnds},
	{"AClaimIsCancelledWhenItsLeasesWouldHaveExpired", claimEndsWithItsLease},
	{"G11_TheFirstClaimKeepsToPrefetchBytes", firstClaim},
}

// asked returns the number of messages that a claim requests.
func asked(op faultdb.Op) int {
	for _, arg := range op.Args {
		n, _ := arg.Value.(int64)
		if small, is := arg.Value.(int32); is {
			n = int64(small)
		}
		if n > 0 && n < 1<<30 { // the first argument that is not the head of the queue
			return int(n)
		}
	}
	return 0
}

// isBare reports whether op is a claim without the contents of its messages.
func isBare(op faultdb.Op) bool {
	return slices.ContainsFunc(op.Args, func(arg driver.NamedValue) bool {
		switch v := arg.Value.(type) {
		case int64:
			return v == -1
		case int32:
			return v == -1
		}
		return false
	})
}

// claimSizes records the sizes of claims.
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
	q := w.Queue("work", chanq.Config{StatementTimeout: testdb.Slowness * testdb.Of(time.Second, 2*time.Second)})
	st := w.Statements("work")
	for _, fault := range []faultdb.Fault{faultdb.Hang(), faultdb.Fail(w.Failure(sqlbatch.BadRow))} {
		testdb.Send(w, q, testdb.Texts(numbers(20)...)...) // all are taken: buffered messages would make claims smaller
		var sizes claimSizes
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) && sizes.note(op) > 1 {
				return fault
			}
			return faultdb.Fault{}
		})
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		for _, l := range testdb.Take(w, c, 5) {
			require.Equal(w, 1, l.Attempt)
			require.NoError(w, l.Ack())
		}
		if all := sizes.all(); w.Engine.Bubble {
			require.Contains(w, fmt.Sprint(all), "[16 8 4 2 1 ")
		} else { // on a busy machine a claim might end before the driver gets it
			falling := all[:1+slices.Index(all, 1)]
			require.Greater(w, len(falling), 2, all)
			require.IsDecreasing(w, falling)
			require.Equal(w, 16, falling[0])
		}
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) {
				sizes.note(op)
			}
			return faultdb.Fault{}
		})
		for _, l := range testdb.Take(w, c, 15) {
			require.NoError(w, l.Ack())
		}
		w.Eventually("claims grow again", func() bool {
			testdb.Send(w, q, testdb.Texts("more")...)
			for _, l := range testdb.Take(w, c, 1) {
				require.NoError(w, l.Ack())
			}
			all := sizes.all()
			return all[len(all)-1] >= 16
		})
		require.NoError(w, c.Shutdown(w.Soon()))
	}
}

// soon checks that less than d has passed since began, but only in a bubble, where a slow machine does not matter.
func (w *world) soon(began time.Time, d time.Duration) {
	w.Helper()
	if w.Engine.Bubble {
		require.Less(w, time.Since(began), d)
	}
}

// overtaken: with the default timeouts, messages of the same claim wait for the first read, and those of later claims for the second.
func overtaken(w *world) {
	q := w.Queue("work", chanq.Config{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 4 << 20})
	testdb.Send(w, q, testdb.Texts("small")...)
	require.NoError(w, testdb.Take(w, c, 1)[0].Ack()) // the size of bodies is now known, so claims may return several messages
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if reads(op, st) {
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	began := time.Now()
	ids := testdb.Send(w, q, testdb.Texts(strings.Repeat("x", 600<<10), "behind")...)
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, ids[1], l.ID)
	require.NoError(w, l.Ack())
	w.soon(began, 8*time.Second)
	later := testdb.Send(w, q, testdb.Texts("later")...)[0]
	l = testdb.Take(w, c, 1)[0]
	require.Equal(w, later, l.ID)
	require.NoError(w, l.Ack())
	w.soon(began, 15*time.Second)
	w.Heal()
}

// shortClaims makes every claim that reads one message hang, with the default timeouts.
func shortClaims(w *world) {
	q := w.Queue("work", chanq.Config{})
	ids := testdb.Send(w, q, testdb.Texts("bad", "behind")...)
	st := w.Statements("work")
	var bare atomic.Bool
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		switch {
		case claims(op, st) && isBare(op):
			bare.Store(true)
		case claims(op, st) && !bare.Load(), reads(op, st) && names(op, ids[0]):
			return faultdb.Hang()
		}
		return faultdb.Fault{}
	})
	began := time.Now()
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := testdb.Take(w, c, 1)[0]
	require.Equal(w, ids[1], l.ID)
	require.NoError(w, l.Ack())
	w.soon(began, time.Minute)
	w.Heal()
}

// unreadable makes every claim that reads the first of three messages fail, and every read of that message alone.
func unreadable(w *world, timeout time.Duration, fault faultdb.Fault, why string) {
	q := w.Queue("work", chanq.Config{StatementTimeout: timeout})
	id := testdb.Send(w, q, testdb.Texts("unreadable", "a", "b")...)[0]
	st := w.Statements("work")
	var mu sync.Mutex
	bare, read := 0, 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case claims(op, st) && isBare(op):
			bare++
		case claims(op, st) && bare == 0:
			return fault
		case reads(op, st):
			require.True(w, names(op, id))
			read++
			return fault
		}
		return faultdb.Fault{}
	})
	var attempts []int
	var cause error
	prefetch := 0 // the default
	if !w.Engine.Bubble {
		prefetch = 2 // fewer claims hang
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: prefetch, Backoff: func(d *chanq.Delivery, err error) time.Duration {
		require.Equal(w, id, d.ID)
		attempts, cause = append(attempts, d.Attempt), err
		return time.Hour
	}})
	require.Equal(w, []string{"a", "b"}, testdb.Bodies(testdb.Take(w, c, 2)))
	w.Eventually("it waits for its next attempt", func() bool { return testdb.Get(w, q, id).State == chanqadmin.StateScheduled })
	e := testdb.Get(w, q, id)
	require.Equal(w, 1, e.Attempts)
	require.True(w, strings.HasPrefix(e.LastError, why), e.LastError)
	require.ErrorContains(w, cause, "chanq: read work: ")
	require.Equal(w, []byte("unreadable"), e.Body)
	require.Empty(w, c.C())
	mu.Lock()
	defer mu.Unlock()
	require.Equal(w, 1, bare, "one message is leased without its contents, once")
	require.Equal(w, 2, read)
	require.Equal(w, []int{1}, attempts)
}

func unreadableEnds(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 2}})
	id := testdb.Send(w, q, testdb.Texts("unreadable")...)[0]
	st := w.Statements("work")
	bad := w.Failure(sqlbatch.BadRow)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if claims(op, st) && !isBare(op) || reads(op, st) {
			return faultdb.Fail(bad)
		}
		return faultdb.Fault{}
	})
	testdb.Start(w, q, chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return time.Millisecond }})
	w.Eventually("it is dead", func() bool { return testdb.Stats(w, q).Dead == 1 })
	e := testdb.Get(w, q, id)
	require.Equal(w, 2, e.Attempts)
	require.Contains(w, e.LastError, "could not be read")
	require.Equal(w, chanq.CauseUnreadable, e.Cause)
}

func claimEndsWithItsLease(w *world) {
	q := w.Queue("work", chanq.Config{StatementTimeout: time.Hour})
	testdb.Send(w, q, testdb.Texts("a")...)
	st := w.Statements("work")
	w.Strike(faultdb.Hang(), func(op faultdb.Op) bool { return claims(op, st) })
	began := time.Now()
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: steadyLease})
	require.Equal(w, 1, testdb.Take(w, c, 1)[0].Attempt)
	require.Less(w, time.Since(began), testdb.Patience/2)
}

func firstClaim(w *world) {
	for maxBody, want := range map[int]int{10_000: 5, 1 << 20: 1, 1000: 16} {
		q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxBody: maxBody}})
		st := w.Statements("work")
		var sizes claimSizes
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if claims(op, st) {
				sizes.note(op)
			}
			return faultdb.Fault{}
		})
		c := testdb.Start(w, q, chanq.ConsumerConfig{PrefetchBytes: 50_000})
		w.Eventually("it has claimed", func() bool { return len(sizes.all()) > 0 })
		require.Equal(w, want, sizes.all()[0], fmt.Sprint(maxBody))
		require.NoError(w, c.Shutdown(context.Background()))
	}
}

// lockedMeanwhile has another session lock the only row while a consumer polls that otherwise pauses for an hour after an empty poll. The
// owner of an ordered queue's slot reads without a lock, so on PostgreSQL it gets the row immediately.
func lockedMeanwhile(w *world) {
	w.skipWithoutRowLocks()
	w.onKinds(func(q *chanq.Queue[string]) {
		id := testdb.Send(w, q, testdb.Texts("a")...)[0]
		unlock := w.lock(q.Name(), id)
		c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: time.Hour})
		pass(slowness * 500 * time.Millisecond)
		if q.Name() == "plain" {
			require.Zero(w, c.Stats().Held)
		}
		unlock()
		began := time.Now()
		l := testdb.Take(w, c, 1)[0]
		if w.Engine.Bubble {
			require.Less(w, time.Since(began), 5*time.Second)
		}
		require.Equal(w, 1, l.Attempt)
		w.ack(l)
	})
}
