package guarantees

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// A message that kills its process must be dead-lettered, and no other message with it.
var lapsing = append([]test{
	{"G07_AConsumerHoldsOneSuspectAtATime", oneSuspect},
	{"G07_AnExpiredLeaseIsNoFailedAttempt", lapsesCountNothing},
	{"G07_ASettleClearsASuspect", settleClears},
	{"G07_AMessageThatExpiredWithAnotherKeepsItsAttemptsForItsOwnFailures", attemptsForFailures},
	{"G07_SuspectsThatWaitAreClaimedOnce", waitingSuspects},
	{"G07_ADeadMessageSaysHowOftenItWasTried", deadSaysWhy},
}, killers()...)

// lapse lets the leases of n messages expire, the given number of times. They are claimed together and never settled. A lapse is counted by
// the next claim.
func lapse(w *world, q *chanq.Queue[string], n, times int) {
	w.Helper()
	for range times {
		w.Hold(q.Name(), n, 100*time.Millisecond)
	}
}

func oneSuspect(w *world) {
	q := w.Queue("work", alone)
	sent := testdb.Send(w, q, testdb.Texts("s0", "s1", "s2", "s3")...)
	lapse(w, q, 4, 2)
	w.Eventually("the leases have expired", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Ready: 4} })
	testdb.Send(w, q, testdb.Texts("f0", "f1", "f2")...)
	// Polls are too rare to find a message: the end of one suspect makes room for the next.
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: time.Minute})
	leases := testdb.Take(w, c, 4)
	require.ElementsMatch(w, []string{"s0", "f0", "f1", "f2"}, testdb.Bodies(leases), "other messages are delivered with it")
	for i := 1; i < 4; i++ {
		require.Equal(w, chanqadmin.Stats{Ready: 4 - i, Leased: 3 + 1}, testdb.Counted(w, q))
		for _, id := range sent[i:] {
			require.Equal(w, 2, testdb.Get(w, q, id).Attempts, "a release does not count")
		}
		// Another new message is delivered although suspects wait; another suspect is not.
		testdb.Send(w, q, testdb.Texts("beside")...)
		l := testdb.Take(w, c, 1)[0]
		require.Equal(w, "beside", l.Body)
		require.NoError(w, l.Ack())
		for _, l := range leases {
			if strings.HasPrefix(l.Body, "s") {
				require.Equal(w, 3, l.Attempt)
				require.NoError(w, l.Ack())
			}
		}
		require.Equal(w, 1, len(leases)-3)
		leases = append(leases[:0], noSuspects(leases)...)
		leases = append(leases, testdb.Take(w, c, 1)...)
		require.Equal(w, fmt.Sprint("s", i), leases[3].Body)
		require.NoError(w, c.Flush(w.Soon()))
	}
	for _, l := range leases {
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	require.Zero(w, testdb.Counted(w, q))
}

func noSuspects(leases []*chanq.Lease[string]) (fresh []*chanq.Lease[string]) {
	for _, l := range leases {
		if !strings.HasPrefix(l.Body, "s") {
			fresh = append(fresh, l)
		}
	}
	return fresh
}

// lapsesCountNothing: messages held by a process that died have not failed, whatever MaxAttempts is.
func lapsesCountNothing(w *world) {
	for _, most := range []int{1, 2} {
		name := fmt.Sprint("work", most)
		q := w.Queue(name, chanq.Config{Spec: chanq.Spec{MaxAttempts: most}})
		testdb.Send(w, q, testdb.Texts("killer", "beside")...)
		lapse(w, q, 2, 2)
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "killer", l.Body)
		require.Equal(w, 3, l.Attempt)
		require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
		beside := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "beside", beside.Body)
		require.Equal(w, 3, beside.Attempt)
		require.NoError(w, beside.Ack())
		require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
	}
}

// attemptsForFailures: a message that was only held together with one that kills its process has not been handled yet, and may fail as
// often as any other.
func attemptsForFailures(w *world) {
	const most = 3
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: most}})
	id := testdb.Send(w, q, testdb.Texts("beside")...)[0]
	lapse(w, q, 1, 2)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	require.Equal(w, 3, l.Attempt)
	for failure := 1; failure < most; failure++ {
		require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
		require.Equal(w, failure, testdb.Get(w, q, id).Attempts, "lapses are not counted as attempts")
		l = testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, failure+1, l.Attempt)
	}
	require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.Equal(w, most, e.Attempts)
}

// waitingSuspects: a claim skips waiting suspects.
func waitingSuspects(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
	testdb.Send(w, q, testdb.Texts("s0", "s1", "s2")...)
	lapse(w, q, 3, 2)
	w.Eventually("the leases have expired", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Ready: 3} })
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: time.Millisecond})
	first := testdb.Take(w, c, 1)[0]
	require.Equal(w, "s0", first.Body)
	before := c.Stats()
	require.EqualValues(w, 1, before.Claimed)
	w.Eventually("it has polled many times", func() bool { return c.Stats().Looks > before.Looks+10 })
	require.EqualValues(w, 1, c.Stats().Claimed)
	require.EqualValues(w, 0, c.Stats().Released)
	require.NoError(w, first.Ack())
	require.Equal(w, "s1", testdb.Take(w, c, 1)[0].Body)
}

func settleClears(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b")...)
	lapse(w, q, 2, 2)
	for range 2 {
		l := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, 3, l.Attempt)
		require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
		if l.Body == "b" {
			break
		}
		again := testdb.Lease(w, q, 1, time.Minute)[0]
		require.NoError(w, again.Release())
		if again.Body == "b" {
			break
		}
	}
	w.Eventually("both are delivered at once again", func() bool {
		c := testdb.Start(w, q, chanq.ConsumerConfig{})
		leases := testdb.Take(w, c, 1)
		w.pass(100 * time.Millisecond)
		leases = append(leases, testdb.Take(w, c, len(c.C()))...)
		for _, l := range leases {
			require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
		}
		require.NoError(w, c.Shutdown(w.Soon()))
		return len(leases) == 2
	})
}

func deadSaysWhy(w *world) {
	for _, c := range []struct{ attempts, crashes, deliveries int }{{1, 0, 5}, {3, 1, 3}, {20, 2, 4}, {chanq.UnlimitedAttempts, 4, 6}} {
		var mu sync.Mutex
		var dead []chanq.DeadEvent
		name := fmt.Sprint("work", c.deliveries)
		q := w.Queue(name, chanq.Config{Spec: chanq.Spec{MaxAttempts: c.attempts}, MaxCrashes: c.crashes, Hooks: chanq.Hooks{Dead: func(e chanq.DeadEvent) {
			mu.Lock()
			defer mu.Unlock()
			dead = append(dead, e)
		}}})
		id := testdb.Send(w, q, testdb.Texts("killer")...)[0]
		for attempt := 1; attempt <= c.deliveries; attempt++ {
			require.Equal(w, attempt, testdb.Lease(w, q, 1, formerLease)[0].Attempt)
		}
		w.Eventually("a consumer dead-letters it", func() bool {
			testdb.RequireNone(w, q)
			return testdb.Stats(w, q).Dead == 1
		})
		e := testdb.Get(w, q, id)
		require.Equal(w, c.deliveries, e.Attempts, "each attempt was a delivery")
		require.Contains(w, e.LastError, fmt.Sprintf("%d attempts; %d leases expired without a settle, %d of them while", c.deliveries, c.deliveries, c.deliveries-2))
		require.Equal(w, []chanq.DeadEvent{{Queue: name, ID: id, Attempt: c.deliveries, Cause: chanq.CauseKilled, Reason: e.LastError}}, dead)
		require.Equal(w, chanq.CauseKilled, e.Cause)
		require.Empty(w, e.Fingerprint)
	}
}

// killers are the tests with processes that one message out of many kills.
func killers() (tests []test) {
	for _, attempts := range []int{1, 10} {
		for _, workers := range []int{1, 4, 8} {
			tests = append(tests, test{
				fmt.Sprintf("G07_OnlyTheMessageThatKillsDies_workers=%d_attempts=%d", workers, attempts),
				func(w *world) { oneKiller(w, workers, attempts) },
			})
		}
	}
	return tests
}

const deadly = "deadly"

// playMortal handles messages until its input ends or the deadly message kills the process.
func playMortal(ctx context.Context, db *sql.DB, t task) error {
	q, err := chanq.Open[string](ctx, db, "work", chanq.Config{})
	if err != nil {
		return err
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{LeaseFor: steadyLease / 2, PollEvery: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	err = c.Handle(t.Workers, func(_ context.Context, l *chanq.Lease[string]) error {
		if l.Body == deadly {
			os.Exit(3)
		}
		fmt.Println(l.Body)
		return nil
	})
	if err != nil {
		return err
	}
	return c.Shutdown(context.Background())
}

// mortal is the number of processes that a message kills with the default MaxCrashes: two make it a suspect.
const mortal = 5

func oneKiller(w *world, workers, attempts int) {
	const count = 100
	w.shared()
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: attempts}})
	messages := testdb.Texts(append([]string{deadly}, numbers(count-1)...)...)
	id := testdb.Send(w, q, messages...)[0]
	seen := map[string]bool{}
	deaths := 0
	for end := false; !end; {
		p := w.spawnTo(task{Part: "die of one", Workers: workers})
		for alive := true; alive; {
			select {
			case line := <-p.lines:
				seen[line] = true
			case <-p.Ended():
				alive = false
			case <-time.After(20 * time.Millisecond):
				if testdb.Empty(w, q) {
					end, alive = true, false
				}
			}
		}
		if !end {
			deaths++
			require.LessOrEqual(w, deaths, mortal, "it kills more processes")
		}
		p.Stop()
		for _, line := range p.rest() {
			seen[line] = true
		}
	}
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, q))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDead, e.State)
	require.Equal(w, mortal, e.Attempts)
	require.Equal(w, mortal, deaths, "each attempt was a delivery")
	require.Contains(w, e.LastError, fmt.Sprintf("%d attempts", mortal))
	for _, n := range numbers(count - 1) {
		require.True(w, seen[n], "message %s was never handled", n)
	}
	require.Len(w, seen, count-1)
}
