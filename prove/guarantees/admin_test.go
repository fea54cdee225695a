package guarantees

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var admin = []test{
	{"StatsCountsEachState", statsCounts},
	{"PeekShowsEachStateWithoutClaiming", peek},
	{"PeekAfterPagesThroughAllThatStays", peekPages},
	{"GetFindsAMessageWhereverItIs", getFinds},
	{"CancelDeletesLiveMessages", cancelLive},
	{"PurgeDeletesEveryMessageOfOneState", purge},
	{"PurgeFindsAStateBehindManyOfAnother", purgeBehind},
	{"OperatorsFindAStateBehindManyOfAnotherInOneSlot", operateBehind},
	{"RedriveMakesTheDeadReadyAgain", redrive},
	{"RedriveMovesAllDeadMessagesExceptThoseWhoseKeyIsTaken", redriveAll},
	{"AMessageKeepsItsType", keepsType},
	{"ADeadMessageHasACauseAndTheGroupOfItsError", deathsAreGrouped},
	{"PauseStopsClaimsOfEveryConsumerUntilResume", pause},
	{"APausedQueueIsPausedWhileItsRowIsLocked", pauseOfLockedRow},
	{"RetainKeepsAckedMessagesForATime", retain},
	{"QueuesDoNotAffectEachOther", isolation},
	{"OpenReportsAMissingSchema", noSchema},
	{"OpenAndMigrateReturnErrNewerSchema", newerSchema},
	{"ManyGoroutinesMayMigrateSimultaneouslyAndAgain", migrateTogether},
	{"AMigrationThatWaitedForAnotherCreatesNothing", migrateSecond},
	{"MigrateCreatesADroppedIndexAgainAndNothingElse", droppedIndex},
	{"TheStatementsOfSchemaCreateAQueue", schemaByHand},
}

// keepsType checks the type of a message after dead-lettering, redrive and ack. Each statement also has a message without a type.
func keepsType(w *world) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		cfg := chanq.Config{Spec: chanq.Spec{Kind: kind, Retain: time.Hour}}
		if kind == chanq.KindOrdered {
			cfg.Slots = 4
		}
		q := w.Queue("kind_"+kind.String(), cfg)
		ids := testdb.Send(w, q, chanq.Message[string]{Body: "typed", Type: "mail.welcome"}, chanq.Message[string]{Body: "plain"})
		types := func(of func(id chanq.ID) string) []string { return []string{of(ids[0]), of(ids[1])} }
		stored := func(id chanq.ID) string { return testdb.Get(w, q, id).Type }
		want := []string{"mail.welcome", ""}
		require.Equal(w, want, types(stored))
		take := func(settle func(*testdb.Held[string]) error) {
			seen := map[chanq.ID]string{}
			for _, l := range testdb.Lease(w, q, 2, time.Hour) {
				seen[l.ID] = l.Type
				require.NoError(w, settle(l))
			}
			require.Equal(w, want, types(func(id chanq.ID) string { return seen[id] }), kind)
		}
		take(func(l *testdb.Held[string]) error { return l.Nack(chanq.DeadLetter(errors.New("over"))) })
		w.Eventually("both are dead", func() bool { return testdb.Stats(w, q).Dead == 2 })
		require.Equal(w, want, types(stored))
		w.redriveIDs(q, ids...)
		require.Equal(w, want, types(stored))
		take(func(l *testdb.Held[string]) error { return l.Ack() })
		w.Eventually("both are done", func() bool { return testdb.Stats(w, q).Done == 2 })
		require.Equal(w, want, types(stored))
	}
}

// deathsAreGrouped: errors that differ only in a number have one fingerprint, and a redrive clears error and fingerprint.
func deathsAreGrouped(w *world) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		cfg := chanq.Config{Spec: chanq.Spec{Kind: kind, MaxAttempts: 1}}
		if kind == chanq.KindOrdered {
			cfg.Slots = 4
		}
		q := w.Queue("deaths_"+kind.String(), cfg)
		causes := map[string]error{
			"a": errors.New("order 17 is not there"), "b": errors.New("order 18 is not there"), "c": errors.New("no such order"),
			"d": chanq.DeadLetter(errors.New("order 19 is not there")), "e": nil,
		}
		testdb.Send(w, q, testdb.Texts("a", "b", "c", "d", "e")...)
		for _, l := range testdb.Lease(w, q, len(causes), time.Hour) {
			require.NoError(w, l.Nack(causes[l.Body]))
		}
		w.Eventually("all are dead", func() bool { return testdb.Stats(w, q).Dead == len(causes) })
		page, err := testdb.Admin(q).List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{Bodies: true})
		require.NoError(w, err)
		dead := map[string]chanqadmin.Entry{}
		for _, e := range page.Entries {
			dead[string(e.Body)] = e
		}
		for body, cause := range map[string]chanq.Cause{"a": chanq.CauseExhausted, "b": chanq.CauseExhausted, "c": chanq.CauseExhausted, "d": chanq.CauseRejected, "e": chanq.CauseExhausted} {
			require.Equal(w, cause, dead[body].Cause, body)
		}
		require.Regexp(w, "^02[0-9a-f]{14}$", dead["a"].Fingerprint)
		require.Equal(w, dead["a"].Fingerprint, dead["b"].Fingerprint)
		require.Equal(w, dead["a"].Fingerprint, dead["d"].Fingerprint)
		require.NotEqual(w, dead["a"].Fingerprint, dead["c"].Fingerprint)
		require.Empty(w, dead["e"].Fingerprint, "there was no error")
		w.redriveIDs(q, dead["a"].ID)
		again := testdb.Get(w, q, dead["a"].ID)
		require.Zero(w, again.Cause)
		require.Empty(w, again.Fingerprint)
	}
}

// oneOfEach sends messages until the queue has one in each state.
func oneOfEach(w *world, q *chanq.Queue[string]) map[chanqadmin.State]chanq.ID {
	byState := map[chanqadmin.State]chanq.ID{}
	for _, s := range []chanqadmin.State{chanqadmin.StateDone, chanqadmin.StateDead, chanqadmin.StateLeased} {
		byState[s] = testdb.Send(w, q, chanq.Message[string]{Body: string(s), DedupKey: string(s), Headers: map[string]string{"is": string(s)}})[0]
		l := testdb.Lease(w, q, 1, time.Hour)[0]
		switch s {
		case chanqadmin.StateDone:
			require.NoError(w, l.Ack())
		case chanqadmin.StateDead:
			require.NoError(w, l.Nack(chanq.DeadLetter(errors.New("enough"))))
		case chanqadmin.StateLeased:
			w.holderIsKnown(q, l.ID)
		}
	}
	byState[chanqadmin.StateReady] = testdb.Send(w, q, testdb.Texts("ready")...)[0]
	byState[chanqadmin.StateScheduled] = testdb.Send(w, q, chanq.Message[string]{Body: "scheduled", Delay: time.Hour})[0]
	return byState
}

// holderIsKnown waits until the consumer that holds a message is recorded, which a claim does not wait for.
func (w *world) holderIsKnown(q *chanq.Queue[string], id chanq.ID) {
	w.Helper()
	w.Eventually("the holder is known", func() bool { return testdb.Get(w, q, id).LeasedBy != "" })
}

var states = []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone}

func statsCounts(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
	require.Equal(w, chanqadmin.Stats{Limit: 10_000}, testdb.Stats(w, q))
	oneOfEach(w, q)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Scheduled: 1, Leased: 1, Dead: 1, Done: 1}, testdb.Counted(w, q))
	w.Eventually("the oldest grows older", func() bool { return testdb.Stats(w, q).OldestReady > 20*time.Millisecond })
	require.Less(w, testdb.Stats(w, q).OldestReady, time.Minute)
}

func peek(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
	byState := oneOfEach(w, q)
	for _, s := range states {
		entries := w.peek(q, s, 10)
		require.Len(w, entries, 1, s)
		require.Equal(w, byState[s], entries[0].ID, s)
		require.Equal(w, testdb.Get(w, q, byState[s]), entries[0], s)
	}
	testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
	entries := w.peek(q, chanqadmin.StateReady, 2)
	require.Len(w, entries, 2)
	require.Equal(w, "ready", string(entries[0].Body))
	for _, bad := range []func() error{
		func() error { _, err := testdb.Peek(w.Soon(), q, "gone", 1); return err },
		func() error { _, err := testdb.Peek(w.Soon(), q, chanqadmin.StateReady, -1); return err },
		func() error { _, err := testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 1001); return err },
		func() error { _, err := testdb.Purge(w.Soon(), q, ""); return err },
		func() error { _, err := testdb.Redrive(w.Soon(), q, -1); return err },
	} {
		require.Error(w, bad())
	}
}

// peekPages reads 40 messages of a state in pages of 7. They are sent as one batch, so most are due at the same time. Between two pages the
// message at the cursor and a later one are removed, and another one is sent.
func peekPages(w *world) {
	for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead} {
		q := w.Queue(string(s), chanq.Config{})
		message := func(i int) (m chanq.Message[string]) {
			m.Priority = chanq.Priority(i%2 + 1)
			if s == chanqadmin.StateScheduled {
				m.Delay = time.Hour
			}
			return m
		}
		ms := make([]chanq.Message[string], 40)
		for i := range ms {
			ms[i] = message(i)
		}
		testdb.Send(w, q, ms...)
		remove := q.Cancel
		if s == chanqadmin.StateLeased || s == chanqadmin.StateDead {
			leases := testdb.Lease(w, q, len(ms), time.Hour)
			if s == chanqadmin.StateDead {
				for _, l := range leases {
					require.NoError(w, l.Nack(chanq.DeadLetter(errors.New("enough"))))
				}
				remove = func(ctx context.Context, ids ...chanq.ID) ([]chanq.ID, error) { return testdb.PurgeIDs(ctx, q, ids...) }
			}
		}
		all := w.peek(q, s, 1000)
		require.Len(w, all, len(ms))

		var stay, shown []chanq.ID
		page, err := testdb.Peek(w.Soon(), q, s, 7)
		for i := 0; len(page) > 0; i++ {
			require.NoError(w, err)
			for _, e := range page {
				shown = append(shown, e.ID)
			}
			last := page[len(page)-1]
			gone := []chanq.ID{last.ID}
			if i < 5 {
				gone = append(gone, all[len(all)-1-i].ID) // from the end, which the pages reach last
			}
			_, err := remove(w.Soon(), gone...)
			require.NoError(w, err)
			if i < 3 && (s == chanqadmin.StateReady || s == chanqadmin.StateScheduled) {
				testdb.Send(w, q, message(0))
			}
			page, err = testdb.PeekAfter(w.Soon(), q, last, 7)
			require.NoError(w, err)
		}
		for _, e := range all[:30] { // none of these is removed before it is shown
			stay = append(stay, e.ID)
		}
		require.Equal(w, stay, known(shown, stay), "%s: each once, and in order", s)
	}
	_, err := testdb.PeekAfter(w.Soon(), w.Queue("ready", chanq.Config{}), chanqadmin.Entry{}, 1)
	require.ErrorContains(w, err, `state ""`)
}

// known returns the ids that are among these.
func known(ids, these []chanq.ID) (known []chanq.ID) {
	for _, id := range ids {
		if slices.Contains(these, id) {
			known = append(known, id)
		}
	}
	return known
}

func getFinds(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
	for s, id := range oneOfEach(w, q) {
		e := testdb.Get(w, q, id)
		require.Equal(w, s, e.State)
		require.Equal(w, string(s), string(e.Body))
		switch s {
		case chanqadmin.StateReady, chanqadmin.StateScheduled:
			require.Nil(w, e.Headers)
			require.Zero(w, e.Attempts)
		default:
			require.Equal(w, map[string]string{"is": string(s)}, e.Headers)
			require.Equal(w, string(s), e.DedupKey)
			require.Equal(w, 1, e.Attempts)
		}
		if s == chanqadmin.StateLeased {
			require.NotEmpty(w, e.LeasedBy)
		}
		if s == chanqadmin.StateDead {
			require.Equal(w, "enough", e.LastError)
		}
	}
	_, err := testdb.Admin(q).Get(w.Soon(), chanq.NewID())
	require.ErrorIs(w, err, chanq.ErrNotFound)
}

func cancelLive(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
	byState := oneOfEach(w, q)
	var all []chanq.ID
	for _, id := range byState {
		all = append(all, id)
	}
	found, err := q.Cancel(w.Soon(), append(all, chanq.NewID())...)
	require.NoError(w, err)
	require.ElementsMatch(w, []chanq.ID{byState[chanqadmin.StateReady], byState[chanqadmin.StateScheduled], byState[chanqadmin.StateLeased]}, found)
	require.Equal(w, chanqadmin.Stats{Dead: 1, Done: 1}, testdb.Counted(w, q))
	found, err = q.Cancel(w.Soon())
	require.NoError(w, err)
	require.Empty(w, found)

	many := testdb.Send(w, q, testdb.Texts(make([]string, 1200)...)...)
	found, err = q.Cancel(w.Soon(), many...)
	require.NoError(w, err)
	require.ElementsMatch(w, many, found)
}

func purge(w *world) {
	for _, s := range states {
		q := w.Queue(string(s)+"_purge", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
		byState := oneOfEach(w, q)
		n := w.purge(q, s)
		require.Equal(w, 1, n, s)
		for other, id := range byState {
			if other == s {
				w.requireState(q, id, "")
			} else {
				w.requireState(q, id, other)
			}
		}
	}
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(make([]string, 1200)...)...) // more than one step
	st := w.Statements("work").Purge(sqlbatch.Ready, 1, sqlbatch.Window{})
	steps, windows := 0, map[string]bool{}
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, st) {
			steps++
			windows[fmt.Sprint(op.Args)] = true
		}
		return faultdb.Fault{}
	})
	n, err := testdb.Purge(w.Soon(), q, chanqadmin.StateReady)
	w.Faults.Inject(nil)
	require.NoError(w, err)
	require.Equal(w, 1200, n)
	require.Greater(w, steps, sqlbatch.Priorities)
	require.Len(w, windows, steps, "each step begins where the previous one ended")
	require.Zero(w, testdb.Counted(w, q))
}

// operateBehind operates on two messages of an ordered queue behind more messages of one slot than one statement scans.
func operateBehind(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	var all []chanq.Message[string]
	for _, text := range numbers(2200) {
		all = append(all, chanq.Message[string]{Key: "a", Body: text})
	}
	ids := testdb.Send(w, q, all...)
	later := []chanq.ID{ids[1050], ids[2199]}
	for _, id := range later {
		w.Exec("UPDATE chanq_work SET due_at = " + w.sqlTime(1) + " WHERE id = " + w.sqlID(id))
	}
	idsOf := func(entries []chanqadmin.Entry, err error) (ids []chanq.ID) {
		w.Helper()
		require.NoError(w, err)
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return ids
	}
	require.Equal(w, later, idsOf(testdb.Peek(w.Soon(), q, chanqadmin.StateScheduled, 10)))
	require.Equal(w, later[:1], idsOf(testdb.Peek(w.Soon(), q, chanqadmin.StateScheduled, 1)))
	require.Equal(w, later[1:], idsOf(testdb.PeekAfter(w.Soon(), q, testdb.Get(w, q, later[0]), 10)))
	require.Empty(w, idsOf(testdb.Peek(w.Soon(), q, chanqadmin.StateLeased, 10)))
	first := idsOf(testdb.Peek(w.Soon(), q, chanqadmin.StateReady, 1000))
	require.Equal(w, ids[:1000], first)
	require.Equal(w, append(slices.Clone(ids[1000:1050]), ids[1051:2001]...), idsOf(testdb.PeekAfter(w.Soon(), q, testdb.Get(w, q, ids[999]), 1000)))

	n := w.purge(q, chanqadmin.StateScheduled)
	require.Equal(w, 2, n)
	require.Equal(w, 2198, testdb.Stats(w, q).Ready)
	n = w.purge(q, chanqadmin.StateReady)
	require.Equal(w, 2198, n)
}

// purgeBehind purges messages behind many messages of another state in the same range of the claim index.
func purgeBehind(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("leased")...)
	w.Hold(q.Name(), 1, 24*time.Hour)
	batch := make([]chanq.Message[string], 1500)
	for i := range batch {
		batch[i].Delay = time.Hour
	}
	testdb.Send(w, q, batch...)
	n := w.purge(q, chanqadmin.StateLeased)
	require.Equal(w, 1, n)
}

func kill(w *world, q *chanq.Queue[string], ms ...chanq.Message[string]) []chanq.ID {
	w.Helper()
	ids := testdb.Send(w, q, ms...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	for _, l := range testdb.Take(w, c, len(ms)) {
		require.NoError(w, l.Nack(chanq.DeadLetter(errors.New("killed"))))
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	return ids
}

func redrive(w *world) {
	q := w.Queue("work", alone)
	ids := kill(w, q, testdb.Texts("a", "b", "c")...)
	before := testdb.Get(w, q, ids[0])
	n := w.redrive(q, 2)
	require.Equal(w, 2, n)
	require.Equal(w, chanqadmin.Stats{Ready: 2, Dead: 1}, testdb.Counted(w, q))
	e := testdb.Get(w, q, ids[0])
	require.Equal(w, chanqadmin.StateReady, e.State, "oldest first")
	require.Zero(w, e.Attempts)
	require.Equal(w, "killed", e.LastError, "the error is kept")
	require.Greater(w, e.Fence, before.Fence, "no former holder can settle it")
	require.Equal(w, before.EnqueuedAt, e.EnqueuedAt)
	n = w.redrive(q, 0)
	require.Equal(w, 1, n)
	got := testdb.Leases(testdb.Lease(w, q, 3, time.Hour))
	require.ElementsMatch(w, []string{"a", "b", "c"}, testdb.Bodies(got))
	require.Equal(w, 1, got[0].Attempt)

	c := paused(w, q)
	require.NoError(w, got[0].Nack(chanq.DeadLetter(nil)))
	require.NoError(w, got[0].Wait(w.Soon()))
	w.redrive(q, 0)
	require.Equal(w, got[0].ID, w.woken(c).ID, "consumers of this process are woken")
}

func redriveAll(w *world) {
	q := w.Queue("work", chanq.Config{})
	keyed := chanq.Message[string]{Body: "keyed", DedupKey: "k"}
	kill(w, q, keyed)
	kill(w, q, keyed)
	for range 3 {
		kill(w, q, testdb.Texts(make([]string, 400)...)...)
	}
	n := w.redrive(q, 0)
	require.Equal(w, 1201, n)
	require.Equal(w, chanqadmin.Stats{Ready: 1201, Dead: 1}, testdb.Counted(w, q), "one of the two must stay dead")
	n = w.redrive(q, 0)
	require.Zero(w, n)
}

func pause(w *world) {
	q := w.Queue("work", chanq.Config{})
	other := w.Queue("other", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("leased")...)
	consumers := []*chanq.Consumer[string]{testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})}
	l := testdb.Take(w, consumers[0], 1)[0]
	require.NoError(w, testdb.Pause(w.Soon(), q))
	require.NoError(w, testdb.Pause(w.Soon(), q), "again")
	require.True(w, testdb.Stats(w, q).Paused)
	require.False(w, testdb.Stats(w, other).Paused)

	_, db := w.Connect()
	consumers = append(consumers, testdb.Start(w, testdb.OpenOn[string](w, db, "work", chanq.Config{}), chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond}))
	testdb.Send(w, q, testdb.Texts("waits")...)
	looks := func() []int64 {
		var n []int64
		for _, c := range consumers {
			n = append(n, c.Stats().Looks+c.Stats().EmptyClaims)
		}
		return n
	}
	before := looks()
	w.Eventually("each consumer has polled again", func() bool {
		now := looks()
		return now[0] > before[0]+3 && now[1] > before[1]+3
	})
	require.Equal(w, chanqadmin.Stats{Ready: 1, Leased: 1, Paused: true}, testdb.Counted(w, q))
	testdb.RequireNone(w, q)
	require.NoError(w, l.Ack(), "leased messages can be settled")
	require.NoError(w, l.Wait(w.Soon()))

	require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{}))
	select {
	case got := <-consumers[0].C():
		require.Equal(w, "waits", got.Body)
	case got := <-consumers[1].C():
		require.Equal(w, "waits", got.Body)
	case <-time.After(testdb.Patience):
		require.Fail(w, "it is still paused")
	}
}

// pauseOfLockedRow has another transaction lock the row of a paused queue, as Pause, Configure and the end of Migrate do.
func pauseOfLockedRow(w *world) {
	w.skipWithoutRowLocks()
	w.onKinds(func(q *chanq.Queue[string]) {
		require.NoError(w, testdb.Pause(w.Soon(), q))
		unlock := w.lockRows("UPDATE chanq__queues SET paused = paused WHERE name = '" + q.Name() + "'")
		testdb.Send(w, q, testdb.Texts("waits")...)
		c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
		require.True(w, testdb.Stats(w, q).Paused)
		w.pass(steadyLease)
		require.Equal(w, 1, testdb.Counted(w, q).Ready)
		require.Empty(w, c.C())
		unlock()
		require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{}))
		w.ack(w.next(c, "waits"))
		require.NoError(w, c.Shutdown(w.Soon()))
	})
}

func retain(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Retain: steadyLease}})
	w.StrikeAll(faultdb.Fail(w.Failure(sqlbatch.Refused)), w.Statements("work").Trim(sqlbatch.Done, steadyLease, 1, 0)) // until it was seen
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	l := testdb.Take(w, c, 1)[0]
	require.NoError(w, l.Ack())
	require.NoError(w, l.Wait(w.Soon()))
	e := testdb.Get(w, q, id)
	require.Equal(w, chanqadmin.StateDone, e.State)
	require.Equal(w, []byte("a"), e.Body)
	require.False(w, e.EndedAt.Before(e.EnqueuedAt))
	w.Heal()
	w.Eventually("it is deleted after Retain", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{} })

	kept := w.Queue("kept", chanq.Config{Spec: chanq.Spec{Retain: time.Hour}})
	id = testdb.Send(w, kept, testdb.Texts("a")...)[0]
	require.NoError(w, testdb.Lease(w, kept, 1, time.Minute)[0].Ack())
	// The message is sent and acked again with its ID, in another millisecond, because the key of SQL Server's table is time and ID.
	pass(2 * time.Millisecond)
	testdb.Send(w, kept, chanq.Message[string]{ID: id, Body: "again"})
	require.NoError(w, testdb.Lease(w, kept, 1, time.Minute)[0].Ack())
	require.Equal(w, []byte("again"), testdb.Get(w, kept, id).Body)
}

func isolation(w *world) {
	a := w.Queue("work", chanq.Config{})
	b := w.Queue("work_2", chanq.Config{})
	id := chanq.NewID()
	testdb.Send(w, a, chanq.Message[string]{ID: id, Body: "a", DedupKey: "k"})
	testdb.Send(w, b, chanq.Message[string]{ID: id, Body: "b", DedupKey: "k"})
	require.NoError(w, testdb.Lease(w, a, 1, time.Minute)[0].Ack())
	require.NoError(w, testdb.Pause(w.Soon(), a))
	l := testdb.Lease(w, b, 1, time.Minute)[0]
	require.Equal(w, "b", l.Body)
	require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
	n := w.redrive(a, 0)
	require.Zero(w, n)
	require.Equal(w, chanqadmin.Stats{Paused: true}, testdb.Counted(w, a))
	require.Equal(w, chanqadmin.Stats{Dead: 1}, testdb.Counted(w, b))
}

func noSchema(w *world) {
	db := w.Open()
	for range 2 {
		_, err := chanq.Open[string](w.Soon(), db, "work", chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "chanq migrate work")
		w.Queue("other", chanq.Config{}) // the registry exists now, the queue does not
	}
}

func newerSchema(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	w.Exec(fmt.Sprintf("UPDATE chanq__queues SET version = %[1]d, min_version = %[1]d", sqlbatch.Version+1))
	_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{})
	require.ErrorIs(w, err, chanq.ErrNewerSchema)
	require.ErrorIs(w, chanq.Migrate(w.Soon(), w.Tables(), "work", chanq.Config{}), chanq.ErrNewerSchema)
	require.ErrorContains(w, err, fmt.Sprint(sqlbatch.Version+1))
	w.requireState(q, id, chanqadmin.StateReady)
}

// droppedIndex creates queues that lack an index, or a table that all queues share, as if it had been dropped.
func droppedIndex(w *world) {
	makesIndex := regexp.MustCompile(`CREATE (UNIQUE )?(NONCLUSTERED )?INDEX`)
	for _, spec := range []chanq.Spec{{Kind: chanq.KindPlain}, {Kind: chanq.KindOrdered, Slots: 4}} {
		if w.Engine.PlainOnly && spec.Kind == chanq.KindOrdered {
			continue
		}
		names := sqlbatch.Names{Slots: spec.Slots}
		dropped := 0
		for number := range w.Engine.Dialect.Migrations(sqlbatch.Names{Queue: "any", Slots: spec.Slots})[0].Statements {
			names.Queue = fmt.Sprintf("%s%d", spec.Kind, number)
			texts := w.Engine.Dialect.Migrations(names)[0].Statements
			if !makesIndex.MatchString(texts[number]) || strings.Contains(texts[number], "chanq__consumers") {
				continue
			}
			dropped++
			for i, text := range texts {
				if i != number {
					w.Define(text)
				}
			}
			st := w.Engine.Dialect.Queue(names).Missing()
			missing := func() (n int) {
				w.Helper()
				require.NoError(w, w.Tables().QueryRowContext(w.Soon(), st.Text, st.Args...).Scan(&n))
				return n
			}
			require.Equal(w, 1, missing(), texts[number])
			require.NoError(w, w.Migrate(names.Queue, chanq.Config{Spec: spec}))
			require.Zero(w, missing(), texts[number])
			before := w.Faults.Ops()
			require.NoError(w, w.Migrate(names.Queue, chanq.Config{Spec: spec}))
			require.LessOrEqual(w, w.Faults.Ops()-before, 8, "it only checks and changes nothing")
		}
		require.GreaterOrEqual(w, dropped, 6)
		tables := []string{"chanq__consumers", "chanq__samples", "chanq__log"} // of all queues
		if spec.Slots > 0 {
			tables = append(tables, "chanq__slots")
		}
		for _, shared := range tables {
			w.Define("DROP TABLE " + chanq.Names{Dialect: w.Engine.ChanqDialect()}.SQL("{"+shared+"}"))
			require.NoError(w, w.Migrate(names.Queue, chanq.Config{Spec: spec}), shared)
			if shared == "chanq__slots" {
				var n int
				text := chanq.Names{Dialect: w.Engine.ChanqDialect()}.SQL("SELECT count(*) FROM {" + shared + "}")
				require.NoError(w, w.Tables().QueryRowContext(w.Soon(), text).Scan(&n))
				require.Equal(w, spec.Slots, n)
			}
			w.Define("DELETE FROM " + chanq.Names{Dialect: w.Engine.ChanqDialect()}.SQL("{"+shared+"}"))
		}
	}
}

func migrateTogether(w *world) {
	tables := w.Tables()
	_, second := w.ConnectTables()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			to := tables
			if i%2 == 1 {
				to = second
			}
			if err := chanq.Migrate(w.Soon(), to, fmt.Sprintf("queue%d", i%3), chanq.Config{}); err != nil {
				w.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	q := testdb.OpenOn[string](w, w.DB, "queue0", chanq.Config{})
	id := testdb.Send(w, q, testdb.Texts("a")...)[0]
	require.NoError(w, testdb.Pause(w.Soon(), q))
	require.NoError(w, chanq.Migrate(w.Soon(), second, "queue0", chanq.Config{}))
	w.requireState(q, id, chanqadmin.StateReady)
	require.True(w, testdb.Stats(w, q).Paused, "migrating again changes nothing")
}

// migrateSecond: a migration that waits for the lock finds the queue that another one has created meanwhile.
func migrateSecond(w *world) {
	w.Open()
	faults, slow := w.ConnectTables()
	waits, gate := make(chan struct{}), make(chan struct{})
	creates := 0
	faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if strings.Contains(op.Text, "CREATE TABLE") && strings.Contains(op.Text, "chanq_late") {
			creates++
		}
		if waits != nil && defines(op) {
			close(waits)
			waits = nil
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	migrated := make(chan error, 1)
	seen := waits
	go func() {
		migrated <- chanq.Migrate(w.Soon(), slow, "late", chanq.Config{Spec: chanq.Spec{MaxAttempts: 3}})
	}()
	select {
	case <-seen:
	case err := <-migrated:
		require.FailNow(w, "it takes no lock", "%v", err)
	}
	require.NoError(w, chanq.Migrate(w.Soon(), w.Tables(), "late", chanq.Config{Spec: chanq.Spec{MaxAttempts: 5}}))
	close(gate)
	require.NoError(w, <-migrated)
	require.Zero(w, creates)
	q, err := chanqadmin.Open(w.Soon(), w.DB, "late", chanq.Config{})
	require.NoError(w, err)
	spec, _ := q.Opened()
	require.Equal(w, 3, spec.MaxAttempts, "the later one stores its Spec")
}

func schemaByHand(w *world) {
	cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Hour}}
	list, err := chanq.Schema(w.Engine.ChanqDialect(), "work", cfg)
	require.NoError(w, err)
	for range 2 {
		for _, text := range list {
			w.Define(text)
		}
	}
	q := testdb.OpenOn[string](w, w.Open(), "work", cfg)
	oneOfEach(w, q)
}
