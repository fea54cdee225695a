package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// badState returns which invariant of the manager the state breaks: two sessions hold incompatible locks, a request
// waits though nothing blocks it, or sessions wait for each other in a circle.
func badState(state []lock.Info) error {
	holds := make(map[lock.Resource]map[int]lock.Mode)
	for _, i := range state {
		if i.Waiting {
			continue
		}
		if holds[i.Resource] == nil {
			holds[i.Resource] = make(map[int]lock.Mode)
		}
		for other, mode := range holds[i.Resource] {
			if other == i.Session {
				return fmt.Errorf("session %d holds two locks on %v", i.Session, i.Resource)
			}
			if !lock.Compatible(mode, i.Mode) {
				return fmt.Errorf("sessions %d and %d hold %v and %v on %v", other, i.Session, mode, i.Mode, i.Resource)
			}
		}
		holds[i.Resource][i.Session] = i.Mode
	}
	waitsFor := make(map[int][]int)
	for at, i := range state {
		if !i.Waiting {
			continue
		}
		for other, mode := range holds[i.Resource] {
			if other != i.Session && !lock.Compatible(mode, i.Mode) {
				waitsFor[i.Session] = append(waitsFor[i.Session], other)
			}
		}
		if holds[i.Resource][i.Session] == lock.None { // not a conversion
			for _, before := range state[:at] {
				if before.Waiting && before.Resource == i.Resource && !lock.Compatible(before.Mode, i.Mode) {
					waitsFor[i.Session] = append(waitsFor[i.Session], before.Session)
				}
			}
		}
		if len(waitsFor[i.Session]) == 0 {
			return fmt.Errorf("session %d waits for %v on %v, which it could have", i.Session, i.Mode, i.Resource)
		}
	}
	for start := range waitsFor {
		seen := make(map[int]bool)
		for next := []int{start}; len(next) > 0; next = next[1:] {
			for _, other := range waitsFor[next[0]] {
				if other == start {
					return fmt.Errorf("session %d waits for itself", start)
				}
				if !seen[other] {
					seen[other] = true
					next = append(next, other)
				}
			}
		}
	}
	return nil
}

// Some sessions, few resources, one step at a time; the state is checked after each step.
func TestAnyHistoryKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	type session struct {
		lock.Owner
		locks  []lock.Info // granted and not released
		asked  lock.Info
		result chan error // not nil while it waits
		cancel context.CancelFunc
	}
	resources := []lock.Resource{whole(1), whole(2), key("a"), key("b"), app("x")}
	rapid.Check(t, func(t *rapid.T) {
		waits := make(chan struct{}, 1)
		m := lock.New(lock.Options{OnWait: func(lock.Info) { waits <- struct{}{} }})
		sessions := make([]*session, rapid.IntRange(2, 6).Draw(t, "sessions"))
		for i := range sessions {
			sessions[i] = &session{Owner: m.NewOwner(i, rapid.IntRange(-1, 1).Draw(t, "priority"))}
		}
		settle := func(s *session, err error) {
			s.result = nil
			s.cancel()
			if err == nil {
				s.locks = append(s.locks, s.asked)
				return
			}
			var e *sqltype.Error
			if errors.As(err, &e) && e.Number == 1205 {
				s.Release()
				s.locks = nil
			}
		}
		// A session that is not listed as waiting gets its answer soon. Receiving an answer might release locks, hence the
		// loop.
		collect := func() {
			for again := true; again; {
				again = false
				waiting := make(map[int]bool)
				state := m.Snapshot()
				for _, i := range state {
					waiting[i.Session] = waiting[i.Session] || i.Waiting
				}
				require.NoError(t, badState(state))
				for i, s := range sessions {
					if s.result != nil && !waiting[i] {
						settle(s, <-s.result)
						again = true
					}
				}
			}
		}
		pick := func(t *rapid.T, waiting bool) *session {
			var of []*session
			for _, s := range sessions {
				if (s.result != nil) == waiting {
					of = append(of, s)
				}
			}
			if len(of) == 0 {
				t.Skip("no such session")
			}
			return rapid.SampledFrom(of).Draw(t, "session")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { collect() },
			"lock": func(t *rapid.T) {
				s := pick(t, false)
				s.asked.Resource = rapid.SampledFrom(resources).Draw(t, "resource")
				modes := tableModes
				if s.asked.Resource.Key != "" {
					modes = keyModes
				}
				s.asked.Mode = rapid.SampledFrom(modes).Draw(t, "mode")
				w := rapid.SampledFrom([]lock.Wait{forever, forever, noWait, skip}).Draw(t, "wait")
				var ctx context.Context
				ctx, s.cancel = context.WithCancel(context.Background())
				s.result = make(chan error, 1)
				answer := s.result
				go func() { answer <- s.Lock(ctx, s.asked.Resource, s.asked.Mode, w) }()
				select {
				case <-waits:
				case err := <-answer:
					settle(s, err)
				}
			},
			"unlock": func(t *rapid.T) {
				s := pick(t, false)
				if len(s.locks) == 0 {
					t.Skip("holds nothing")
				}
				at := rapid.IntRange(0, len(s.locks)-1).Draw(t, "which")
				l := s.locks[at]
				s.locks = append(s.locks[:at], s.locks[at+1:]...)
				s.Unlock(l.Resource, l.Mode)
			},
			"release": func(t *rapid.T) {
				s := pick(t, false)
				s.Release()
				s.locks = nil
			},
			"work": func(t *rapid.T) { pick(t, false).AddCost(rapid.IntRange(1, 3).Draw(t, "cost")) },
			"cancel": func(t *rapid.T) {
				s := pick(t, true)
				s.cancel()
				settle(s, <-s.result)
			},
		})
		// Each session holds the union of the locks that it counts.
		for _, s := range sessions {
			if s.result == nil {
				held := make(map[lock.Resource]lock.Mode)
				for _, l := range s.locks {
					held[l.Resource] = lock.Union(held[l.Resource], l.Mode)
				}
				for _, r := range resources {
					require.Equal(t, held[r], s.Held(r))
				}
			}
		}
		for done := false; !done; {
			done = true
			for _, s := range sessions {
				if s.result == nil {
					s.Release()
					s.locks = nil
				} else {
					done = false
				}
			}
			collect()
		}
		require.Empty(t, m.Snapshot())
	})
}

// Sessions run concurrent transactions, with each kind of wait and of end. All must end: a lost wake-up, or a deadlock
// that is not broken, would exceed the deadline of ctx.
func TestConcurrentSessionsAllFinish(t *testing.T) {
	t.Parallel()
	const sessions, transactions = 8, 150
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := lock.New(lock.Options{})
	failed := make(chan error, sessions)
	for session := range sessions {
		go func() {
			failed <- runTransactions(ctx, m, session, transactions)
		}()
	}
	for range sessions {
		require.NoError(t, <-failed)
	}
	require.Empty(t, m.Snapshot())
}

func runTransactions(ctx context.Context, m lock.Manager, session, n int) error {
	random := rand.New(rand.NewPCG(1, uint64(session)))
	o := m.NewOwner(session, session%3)
	for range n {
		for range 1 + random.IntN(6) {
			r, modes := key(fmt.Sprint(random.IntN(6))), keyModes
			if random.IntN(3) == 0 {
				r, modes = whole(uint32(random.IntN(2))), tableModes
			}
			w := []lock.Wait{forever, forever, skip, noWait, {Timeout: time.Millisecond}}[random.IntN(5)]
			bound, cancel := ctx, context.CancelFunc(func() {})
			if random.IntN(8) == 0 {
				bound, cancel = context.WithTimeout(ctx, 100*time.Microsecond)
			}
			err := o.Lock(bound, r, modes[random.IntN(len(modes))], w)
			cancel()
			o.AddCost(1)
			if err := cmp.Or(ctx.Err(), badState(m.Snapshot())); err != nil {
				return err
			}
			var e *sqltype.Error
			if errors.As(err, &e) && e.Number == 1205 {
				break
			}
		}
		if random.IntN(4) == 0 {
			o.Escalate(7, lock.X)
		}
		o.Release()
	}
	return nil
}
