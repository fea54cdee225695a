package guarantees

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Changes of selected messages of a state.
var adminSelections = []test{
	{"DeadMessagesAreGroupedByCauseAndFingerprint", causesGroup},
	{"MessagesThatWaitForARetryAreGroupedByTheirErrors", failingGroups},
	{"AMessageHasTheHistoryOfItsFailedAttempts", historyOfMessage},
	{"ManyGroupsArePagedAndBounded", manyCauses},
	{"ASelectionChangesTheMessagesThatItMatchesAndNoOthers", selections},
	{"ADryRunChangesNothingAndStopsAtItsLimit", trialRuns},
	{"ADryRunCountsNoMoreThanTheLimit", trialRunsWithLimit},
	{"ADryRunCountsTheMessagesOfAllSlots", trialRunOfSlots},
	{"ARedriveContinuesAfterAStepWhoseKeysWereTaken", redriveBesideASend},
	{"ASelectionThatNoIndexHasIsRefusedBeforeAnyStatement", refusedSelections},
	{"AnEmptyListOfIDsSelectsNothing", noIDs},
	{"AChangePerSecondWaitsAndReturnsWithItsContext", perSecond},
	{"WhatTheDatabaseRollsBackIsRepeated", rolledBack},
	{"EachStatementOfAnOperatorHasItsOwnTime", boundedStatements},
	{"APageOfAListStopsAfterManyMessagesThatDoNotMatch", boundedLists},
	{"AListOfOneMessageReadsAsManyAsALongerOne", shortLists},
	{"AChangePerSecondFindsItsMessagesAsFastAsAnother", rareChanges},
	{"APauseKeepsWhoPausedAndWhy", pausedBy},
}

// killed dead-letters a message for each error and returns the IDs.
func killed(w *world, q *chanq.Queue[string], causes ...string) (ids []chanq.ID) {
	w.Helper()
	for _, cause := range causes {
		ids = append(ids, testdb.Send(w, q, testdb.Texts(cause)...)...)
		require.NoError(w, testdb.Lease(w, q, 1, time.Hour)[0].Nack(chanq.DeadLetter(errors.New(cause))))
	}
	return ids
}

func causesGroup(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
	admin := testdb.Admin(q)
	found, err := admin.Causes(w.Soon())
	require.NoError(w, err)
	require.Empty(w, found.Groups)
	ids := killed(w, q, "user 1 is unknown", "disk full", "user 22 is unknown")
	testdb.Send(w, q, testdb.Texts("spent")...)
	require.NoError(w, testdb.Lease(w, q, 1, time.Hour)[0].Nack(errors.New("user 3 is unknown")))
	bare := testdb.Send(w, q, testdb.Texts("no text")...)[0]
	require.NoError(w, testdb.Lease(w, q, 1, time.Hour)[0].Nack(chanq.DeadLetter(errors.New(""))))
	found, err = admin.Causes(w.Soon())
	require.NoError(w, err)
	require.False(w, found.More)
	var groups []string
	for _, g := range found.Groups {
		groups = append(groups, fmt.Sprintf("%s %d %s", g.Cause, g.Messages, g.LastError))
		if g.LastError == "user 22 is unknown" {
			require.Equal(w, ids[2], g.Example)
			require.Equal(w, testdb.Get(w, q, ids[0]).EndedAt.UnixMilli(), g.First.UnixMilli())
			require.Equal(w, testdb.Get(w, q, ids[2]).EndedAt.UnixMilli(), g.Last.UnixMilli())
			require.Equal(w, testdb.Get(w, q, ids[0]).Fingerprint, g.Fingerprint)
		}
	}
	require.ElementsMatch(w, []string{"exhausted 1 user 3 is unknown", "rejected 2 user 22 is unknown", "rejected 1 disk full", "rejected 1 " + testdb.Get(w, q, bare).LastError}, groups)
	for _, g := range found.Groups {
		done, err := admin.Purge(w.Soon(), g.Select(), chanqadmin.Change{})
		require.NoError(w, err)
		require.Equal(w, g.Messages, done.Messages, "%+v", g)
	}
	require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
}

func manyCauses(w *world) {
	const groups = 205
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts(make([]string, groups)...)...)
	for i, l := range testdb.Lease(w, q, groups, time.Hour) {
		require.NoError(w, l.Nack(chanq.DeadLetter(fmt.Errorf("no such thing as %c%c", 'k'+i%15, 'k'+i/15)))) // without a number, because digits are ignored and would make one group
	}
	found, err := testdb.Admin(q).Causes(w.Soon())
	require.NoError(w, err)
	require.Len(w, found.Groups, groups)
	require.False(w, found.More)
	s := chanqadmin.Select{State: chanqadmin.StateDead, Cause: chanq.CauseRejected}
	dry, err := testdb.Admin(q).Redrive(w.Soon(), s, chanqadmin.Change{DryRun: true})
	require.NoError(w, err)
	require.Equal(w, chanqadmin.Changed{Messages: groups}, dry)
	done, err := testdb.Admin(q).Redrive(w.Soon(), s, chanqadmin.Change{})
	require.NoError(w, err)
	require.Equal(w, groups, done.Messages, "all groups of the cause")
}

// dead is a queue with six dead messages: three of type mail, and later three of type bill, of which the last has another cause.
type dead struct {
	q           *chanq.Queue[string]
	mails, bill []chanq.ID
	group       string // the fingerprint of mails 0 and 2 and of bill 0
}

func deadOf(w *world, name string, cfg chanq.Config) dead {
	w.Helper()
	cfg.MaxAttempts = 1
	d := dead{q: w.Queue(name, cfg)}
	c := testdb.Start(w, d.q, chanq.ConsumerConfig{})
	die := func(kind, text string, err error) chanq.ID {
		m := chanq.Message[string]{Body: text, Type: kind}
		if cfg.Kind == chanq.KindOrdered {
			m.Key = "key of " + kind
		}
		id := testdb.Send(w, d.q, m)[0]
		l := testdb.Receive(w, c.C(), text)
		require.NoError(w, l.Nack(err))
		require.NoError(w, l.Wait(w.Soon()))
		return id
	}
	for _, text := range []string{"user 1 is unknown", "disk full", "user 2 is unknown"} {
		d.mails = append(d.mails, die("mail", text, chanq.DeadLetter(errors.New(text))))
	}
	time.Sleep(10 * time.Millisecond) // the database stores milliseconds
	d.bill = append(d.bill, die("bill", "x", chanq.DeadLetter(errors.New("user 3 is unknown"))), die("bill", "x", chanq.DeadLetter(errors.New("no stock"))),
		die("bill", "x", errors.New("user 4 is unknown")))
	c.Stop()
	require.NoError(w, c.Shutdown(w.Soon()))
	d.group = testdb.Get(w, d.q, d.mails[0]).Fingerprint
	return d
}

var selected = map[string]func(w *world, d dead) (chanqadmin.Select, []chanq.ID){
	"all": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{All: true}, slices.Concat(d.mails, d.bill)
	},
	"ids": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{IDs: []chanq.ID{d.bill[1], d.mails[0], chanq.NewID()}}, []chanq.ID{d.mails[0], d.bill[1]}
	},
	"cause": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Cause: chanq.CauseRejected}, slices.Concat(d.mails, d.bill[:2])
	},
	"another_cause": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Cause: chanq.CauseExhausted}, d.bill[2:]
	},
	"group": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Cause: chanq.CauseRejected, Fingerprint: d.group}, []chanq.ID{d.mails[0], d.mails[2], d.bill[0]}
	},
	"no_fingerprint": func(*world, dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Cause: chanq.CauseRejected, Fingerprint: chanqadmin.NoFingerprint}, nil
	},
	"type": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Type: "mail"}, d.mails
	},
	"type_of_a_cause": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Type: "bill", Cause: chanq.CauseRejected}, d.bill[:2]
	},
	"before": func(w *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Before: testdb.Get(w, d.q, d.bill[0]).EndedAt}, d.mails
	},
	"before_and_type": func(w *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Before: testdb.Get(w, d.q, d.bill[0]).EndedAt, Type: "mail"}, d.mails
	},
	"before_and_group": func(w *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Before: testdb.Get(w, d.q, d.bill[0]).EndedAt, Cause: chanq.CauseRejected, Fingerprint: d.group}, []chanq.ID{d.mails[0], d.mails[2]}
	},
	"key": func(_ *world, d dead) (chanqadmin.Select, []chanq.ID) {
		return chanqadmin.Select{Key: "key of mail"}, d.mails
	},
}

func selections(w *world) {
	for name, of := range selected {
		for kind, cfg := range map[string]chanq.Config{"plain": {}, "ordered": orderedConfig} {
			if kind == "plain" && name == "key" || kind == "ordered" && (w.Engine.PlainOnly || name != "key" && name != "group" && name != "type_of_a_cause") {
				continue
			}
			d := deadOf(w, kind+"_"+name, cfg)
			s, want := of(w, d)
			s.State = chanqadmin.StateDead
			admin := testdb.Admin(d.q)
			if s.IDs == nil {
				requireListed(w, admin, s, want, name)
				dry, err := admin.Purge(w.Soon(), s, chanqadmin.Change{DryRun: true})
				require.NoError(w, err, name)
				require.Equal(w, chanqadmin.Changed{Messages: len(want)}, dry, name)
			}
			require.Equal(w, 6, testdb.Counted(w, d.q).Dead, "nothing was changed before")
			done, err := admin.Redrive(w.Soon(), s, chanqadmin.Change{})
			require.NoError(w, err, name)
			require.Equal(w, len(want), done.Messages, name)
			for _, id := range slices.Concat(d.mails, d.bill) {
				state := chanqadmin.StateDead
				if slices.Contains(want, id) {
					state = chanqadmin.StateReady
				}
				require.Equal(w, state, testdb.Get(w, d.q, id).State, "%s of a queue that is %s", name, kind)
			}
			rest, err := admin.Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, All: true}, chanqadmin.Change{})
			require.NoError(w, err)
			require.Equal(w, 6-len(want), rest.Messages)
		}
	}
	d := deadOf(w, "bills", chanq.Config{})
	done, err := testdb.Admin(d.q).Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, Type: "bill"}, chanqadmin.Change{Limit: 2})
	require.NoError(w, err)
	require.Equal(w, 2, done.Messages)
	w.requireState(d.q, d.bill[2], chanqadmin.StateDead)
	require.Equal(w, 4, testdb.Counted(w, d.q).Dead)
}

// requireListed pages through a selection with and without bodies.
func requireListed(w *world, q *chanqadmin.Queue, s chanqadmin.Select, want []chanq.ID, name string) {
	w.Helper()
	for _, bodies := range []bool{true, false} {
		var got []chanq.ID
		for page := (chanqadmin.Page{}); ; {
			var err error
			page, err = q.List(w.Soon(), s, chanqadmin.List{After: page.Next, Limit: 2, Bodies: bodies})
			require.NoError(w, err, name)
			for _, e := range page.Entries {
				got = append(got, e.ID)
				require.Equal(w, bodies, e.Body != nil, name)
			}
			if page.Next == "" {
				break
			}
		}
		require.ElementsMatch(w, want, got, name)
	}
}

func trialRunsWithLimit(w *world) {
	q := w.Queue("work", chanq.Config{})
	kill(w, q, testdb.Texts("a", "b", "c")...)
	testdb.Send(w, q, testdb.Texts("d", "e", "f")...)
	for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateDead} {
		for limit := 1; limit <= 4; limit++ {
			dry, err := testdb.Admin(q).Purge(w.Soon(), chanqadmin.Select{State: state, All: true}, chanqadmin.Change{DryRun: true, Limit: limit})
			require.NoError(w, err)
			require.Equal(w, chanqadmin.Changed{Messages: min(3, limit)}, dry, "%s, limit %d", state, limit)
		}
	}
}

func trialRuns(w *world) {
	q := w.Queue("work", chanq.Config{})
	admin := testdb.Admin(q)
	kill(w, q, testdb.Texts("a", "b")...)
	testdb.Send(w, q, testdb.Texts(make([]string, 10_500)...)...)
	for _, state := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateDead, chanqadmin.StateDone, chanqadmin.StateScheduled} {
		dry, err := admin.Purge(w.Soon(), chanqadmin.Select{State: state, All: true}, chanqadmin.Change{DryRun: true})
		require.NoError(w, err)
		want := map[chanqadmin.State]chanqadmin.Changed{chanqadmin.StateReady: {Messages: 10_000, More: true}, chanqadmin.StateDead: {Messages: 2}}[state]
		require.Equal(w, want, dry, state)
	}
	require.Equal(w, chanqadmin.Stats{Ready: 10_000, Dead: 2}, testdb.Counted(w, q))
	_, err := admin.Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, IDs: []chanq.ID{{1}}}, chanqadmin.Change{DryRun: true})
	require.ErrorContains(w, err, "Change.DryRun is set with Select.IDs")
}

func trialRunOfSlots(w *world) {
	const n = 4000 // more than one list returns
	q := w.keys(chanq.Config{Spec: chanq.Spec{Slots: 64}})
	ms, _ := manyKeys(n/10, 10)
	testdb.Send(w, q, ms...)
	dry, err := testdb.Admin(q).Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady, All: true}, chanqadmin.Change{DryRun: true})
	require.NoError(w, err)
	require.Equal(w, chanqadmin.Changed{Messages: n}, dry)
}

// redriveBesideASend redrives one message in each step while a transaction has sent one with the key of the first.
func redriveBesideASend(w *world) {
	w.skipWithoutRowLocks()
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: 1}})
	for _, key := range []string{"first", "second", "third"} {
		kill(w, q, chanq.Message[string]{DedupKey: key, Body: key})
		pass(10 * time.Millisecond) // they die in this order
	}
	tx := w.begin(w.DB)
	w.sendTx(q, tx, chanq.Message[string]{DedupKey: "first", Body: "new"})
	committed := make(chan error, 1)
	go func() {
		pass(time.Second) // the first step waits for it meanwhile
		committed <- tx.Commit()
	}()
	done, err := testdb.Admin(q).Redrive(w.Soon(), chanqadmin.Select{All: true}, chanqadmin.Change{PerSecond: 1})
	require.NoError(w, err)
	require.NoError(w, <-committed)
	require.Equal(w, 2, done.Messages)
}

func refusedSelections(w *world) {
	q := w.Queue("work", chanq.Config{})
	admin := testdb.Admin(q)
	ids := []chanq.ID{chanq.NewID()}
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Query || op.Kind == faultdb.Exec {
			w.Errorf("a statement: %s", op.Text)
		}
		return faultdb.Fault{}
	})
	defer w.Faults.Inject(nil)
	for words, s := range map[string]chanqadmin.Select{
		"state \"lost\": must be ready, scheduled, leased, dead or done": {State: "lost", All: true},
		"Select has nothing but the state dead: set All":                 {State: chanqadmin.StateDead},
		"Select.Fingerprint is \"none\" without Select.Cause":            {State: chanqadmin.StateDead, Fingerprint: chanqadmin.NoFingerprint},
		"Select.Fingerprint is \"odd\": must be 16 hexadecimal digits":   {State: chanqadmin.StateDead, Cause: chanq.CauseKilled, Fingerprint: "odd"},
		"Select.Cause is killed: must be empty for ready messages":       {State: chanqadmin.StateReady, Cause: chanq.CauseKilled},
		"Select.Fingerprint is \"none\": must be empty for done":         {State: chanqadmin.StateDone, Fingerprint: chanqadmin.NoFingerprint},
		"Select.Before is": {State: chanqadmin.StateLeased, Before: time.Unix(1, 0)},
		"Select.Key is \"k\": must be empty, since messages of a plain": {State: chanqadmin.StateDead, Key: "k"},
		"Select.Type is \"t\": must be empty for changes of ready":      {State: chanqadmin.StateReady, Type: "t"},
		"Select.Type is \"t\": must be empty for changes of done":       {State: chanqadmin.StateDone, Type: "t"},
		"Select.IDs has 1 IDs: all other fields except State":           {State: chanqadmin.StateDead, IDs: ids, Type: "t"},
		"must be dead with Select.IDs; Cancel":                          {State: chanqadmin.StateReady, IDs: ids},
	} {
		_, err := admin.Purge(w.Soon(), s, chanqadmin.Change{})
		require.ErrorContains(w, err, words)
	}
	for words, c := range map[string]chanqadmin.Change{
		"Change.Limit is -1": {Limit: -1}, "Change.PerSecond is -1": {PerSecond: -1}, "Change.Reason is": {Reason: "a\x00b"}, "Change.Actor is": {Actor: string(make([]byte, 401))},
	} {
		_, err := admin.Redrive(w.Soon(), chanqadmin.Select{All: true}, c)
		require.ErrorContains(w, err, words)
	}
	_, err := admin.Redrive(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDone, All: true}, chanqadmin.Change{})
	require.ErrorContains(w, err, "Select.State is \"done\": must be dead or empty")
	_, err = admin.Cancel(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady, All: true}, chanqadmin.Change{})
	require.ErrorContains(w, err, "Select must have IDs and nothing else")
	_, err = admin.List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, IDs: ids}, chanqadmin.List{})
	require.ErrorContains(w, err, "Get returns a message by its ID")
	_, err = admin.List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDone, Type: "t"}, chanqadmin.List{Bodies: true})
	require.ErrorContains(w, err, "List.Bodies is set")
	require.ErrorContains(w, admin.Pause(w.Soon(), chanqadmin.Change{Limit: 1}), "must be zero")
}

func noIDs(w *world) {
	q := w.Queue("work", chanq.Config{})
	kill(w, q, testdb.Texts("a", "b")...)
	testdb.Send(w, q, testdb.Texts("c")...)
	for _, none := range []chanqadmin.Select{{State: chanqadmin.StateDead, IDs: []chanq.ID{}}, {State: chanqadmin.StateDead}} {
		for _, change := range []func(context.Context, chanqadmin.Select, chanqadmin.Change) (chanqadmin.Changed, error){testdb.Admin(q).Redrive, testdb.Admin(q).Purge} {
			done, err := change(w.Soon(), none, chanqadmin.Change{})
			require.Equal(w, none.IDs == nil, err != nil)
			require.Zero(w, done.Messages)
		}
	}
	done, err := testdb.Admin(q).Cancel(w.Soon(), chanqadmin.Select{IDs: []chanq.ID{}}, chanqadmin.Change{})
	require.NoError(w, err)
	require.Zero(w, done.Messages)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Dead: 2}, testdb.Counted(w, q))
}

func perSecond(w *world) {
	for name, s := range map[string]chanqadmin.Select{"all": {All: true}, "cause": {Cause: chanq.CauseRejected}} {
		q := w.Queue("of_"+name, chanq.Config{})
		kill(w, q, testdb.Texts(make([]string, 30)...)...)
		var seen []int
		began := time.Now()
		done, err := testdb.Admin(q).Redrive(w.Soon(), s, chanqadmin.Change{PerSecond: 10, Limit: 20, Progress: func(n int) { seen = append(seen, n) }})
		require.NoError(w, err)
		require.Equal(w, []int{10, 20}, seen)
		require.Equal(w, 20, done.Messages)
		require.GreaterOrEqual(w, time.Since(began), time.Second)
		ctx, cancel := context.WithCancel(w.Soon())
		done, err = testdb.Admin(q).Redrive(ctx, s, chanqadmin.Change{PerSecond: 1, Progress: func(int) { cancel() }}) // ends between the first step and the second
		require.ErrorIs(w, err, context.Canceled)
		require.Equal(w, 1, done.Messages, "an error comes with the count so far")
		require.Equal(w, 9, testdb.Counted(w, q).Dead)
	}
}

func rolledBack(w *world) {
	q := w.Queue("work", chanq.Config{})
	admin := testdb.Admin(q)
	ids := kill(w, q, testdb.Texts("a", "b", "c", "d")...)
	st := w.Statements("work")
	for name, call := range map[string]struct {
		meant sqlbatch.Statement
		do    func() error
	}{
		"list": {st.Browse(sqlbatch.Dead, 1, nil, sqlbatch.Filter{}), func() error {
			_, err := admin.List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{})
			return err
		}},
		"stats":   {st.Stats(1), func() error { _, err := admin.Stats(w.Soon()); return err }},
		"causes":  {st.Causes(sqlbatch.Group{}, 1, 1), func() error { _, err := admin.Causes(w.Soon()); return err }},
		"purge":   {st.Discard(nil), func() error { _, err := testdb.PurgeIDs(w.Soon(), q, ids[0]); return err }},
		"redrive": {st.Redrive(1, make([][16]byte, 1), sqlbatch.Window{}), func() error { _, err := testdb.RedriveIDs(w.Soon(), q, ids[1]); return err }},
		"pause":   {st.Pause("", ""), func() error { return testdb.Pause(w.Soon(), q) }},
	} {
		times := 0
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.Runs(op, call.meant) {
				if times++; times < 4 {
					return faultdb.Fail(w.Failure(sqlbatch.RolledBack))
				}
			}
			return faultdb.Fault{}
		})
		require.NoError(w, call.do(), name)
		if name == "causes" {
			times-- // the empty page at the end
		}
		require.Equal(w, 4, times, name)
		w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
			if testdb.Runs(op, call.meant) {
				return faultdb.Fail(w.Failure(sqlbatch.RolledBack))
			}
			return faultdb.Fault{}
		})
		require.Error(w, call.do(), "%s is not repeated endlessly", name)
		w.Faults.Inject(nil)
	}
}

// boundedStatements: two steps of a purge together exceed the statement timeout, and the third step hangs. On a real clock, on which a
// loaded machine adds to it, no step takes that long.
func boundedStatements(w *world) {
	const timeout, dead = 2 * time.Second, 1500
	ofPurge := timeout
	if !w.Engine.Bubble {
		ofPurge = 10 * time.Second
	}
	q := w.Queue("work", chanq.Config{StatementTimeout: timeout})
	admin := func(timeout time.Duration) *chanqadmin.Queue {
		var opened *chanqadmin.Queue
		w.Eventually("the queue is opened within the timeout", func() (is bool) {
			var err error
			opened, err = chanqadmin.Open(w.Soon(), w.DB, q.Name(), chanq.Config{StatementTimeout: timeout})
			return err == nil
		})
		return opened
	}
	purger, other := admin(ofPurge), admin(timeout)
	kill(w, w.Queue(q.Name(), chanq.Config{}), testdb.Texts(make([]string, dead)...)...)
	steps := 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !testdb.Runs(op, w.Statements("work").Purge(sqlbatch.Dead, 1, sqlbatch.Window{})) {
			return faultdb.Fault{}
		}
		if steps++; steps > 2 {
			return faultdb.Hang()
		}
		if !w.Engine.Bubble {
			return faultdb.Fault{}
		}
		return faultdb.Hold(after(timeout * 2 / 3))
	})
	late := func(err error, timeout time.Duration) {
		w.Helper()
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorContains(w, err, fmt.Sprintf("no answer within Config.StatementTimeout (%v)", timeout))
	}
	changed, err := purger.Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, All: true}, chanqadmin.Change{})
	late(err, ofPurge)
	require.Equal(w, dead, changed.Messages, "an error comes with the count so far")
	var failed *chanq.OpError
	require.ErrorAs(w, err, &failed)
	require.True(w, failed.Unknown)
	w.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Hang() })
	_, err = other.Stats(w.Soon())
	late(err, timeout)
	_, err = q.Empty(w.Soon())
	late(err, timeout)
	_, err = q.Cancel(w.Soon(), chanq.NewID())
	late(err, timeout)
	_, err = chanq.Open[string](w.Soon(), w.DB, q.Name(), chanq.Config{StatementTimeout: timeout})
	late(err, timeout)
	require.ErrorIs(w, err, chanq.ErrUnavailable)
	w.Faults.Inject(nil)
	require.Zero(w, testdb.Counted(w, q))
}

// boundedLists has one leased message behind many ready ones: a page ends before it.
func boundedLists(w *world) {
	q := w.Queue("work", chanq.Config{})
	const before = 10_500
	testdb.Send(w, q, chanq.Message[string]{Body: "last", Priority: chanq.PriorityUrgent})
	lease := testdb.Lease(w, q, 1, time.Hour)[0]
	w.Exec("UPDATE chanq_work SET priority = -1")
	testdb.Send(w, q, testdb.Texts(make([]string, before)...)...)
	for _, bodies := range []bool{true, false} {
		page, err := testdb.Admin(q).List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{Bodies: bodies})
		require.NoError(w, err)
		require.Empty(w, page.Entries)
		require.NotEmpty(w, page.Next, "the list continues")
		page, err = testdb.Admin(q).List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{After: page.Next, Bodies: bodies})
		require.NoError(w, err)
		require.Len(w, page.Entries, 1)
		require.Equal(w, lease.ID, page.Entries[0].ID)
		require.Equal(w, bodies, page.Entries[0].Body != nil)
		require.Empty(w, page.Next)
	}
}

// shortLists looks for one message that is behind all others.
func shortLists(w *world) {
	const others = 1500
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := w.Queue("of_"+kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind}})
		ms := testdb.Texts(make([]string, others+1)...)
		for i := range ms {
			if ms[i].Type = "common"; kind == chanq.KindOrdered {
				ms[i].Key = "common"
			}
		}
		last := &ms[others]
		s := chanqadmin.Select{State: chanqadmin.StateReady, Type: "rare"}
		if last.Type = "rare"; kind == chanq.KindOrdered {
			last.Key, s.Key, s.Type = "rare", "rare", ""
		}
		ids := testdb.Send(w, q, ms...)
		for _, limit := range []int{1, 2, 100} {
			page, err := testdb.Admin(q).List(w.Soon(), s, chanqadmin.List{Limit: limit})
			require.NoError(w, err)
			require.Len(w, page.Entries, 1, "%v, limit %d", kind, limit)
			require.Equal(w, ids[others], page.Entries[0].ID)
		}
		s.Type = "common"
		s.Key = strings.Replace(s.Key, "rare", "common", 1)
		var found []chanq.ID
		for l := (chanqadmin.List{Limit: 999}); len(found) <= others; {
			page, err := testdb.Admin(q).List(w.Soon(), s, l)
			require.NoError(w, err)
			for _, e := range page.Entries {
				found = append(found, e.ID)
			}
			if l.After = page.Next; page.Next == "" {
				break
			}
		}
		require.Equal(w, ids[:others], found, kind)
	}
}

// rareChanges purges the last of many dead messages by its type.
func rareChanges(w *world) {
	q := w.Queue("work", chanq.Config{})
	const others = 30
	ms := testdb.Texts(make([]string, others+1)...)
	ms[others].Type = "rare"
	for i := range ms {
		kill(w, q, ms[i])
		pass(time.Millisecond) // they die in this order
	}
	walk, walks := w.Statements("work").Walk(nil, 1, sqlbatch.Window{}), 0
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if testdb.Runs(op, walk) {
			walks++
		}
		return faultdb.Fault{}
	})
	done, err := testdb.Admin(q).Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateDead, Type: "rare"}, chanqadmin.Change{PerSecond: 1})
	require.NoError(w, err)
	require.Equal(w, 1, done.Messages)
	require.LessOrEqual(w, walks, 2)
}

func pausedBy(w *world) {
	admin := testdb.Admin(w.Queue("work", chanq.Config{}))
	require.NoError(w, admin.Pause(w.Soon(), chanqadmin.Change{Actor: "ada", Reason: "the printer burns"}))
	found, err := admin.Paused(w.Soon())
	require.NoError(w, err)
	require.Equal(w, [2]string{"ada", "the printer burns"}, [2]string{found.By, found.Reason})
	require.False(w, found.Since.IsZero())
	require.NoError(w, admin.Resume(w.Soon(), chanqadmin.Change{}))
	found, err = admin.Paused(w.Soon())
	require.NoError(w, err)
	require.Zero(w, found)
	require.NoError(w, admin.Pause(w.Soon(), chanqadmin.Change{}))
	found, err = admin.Paused(w.Soon())
	require.NoError(w, err)
	require.Regexp(w, `/\d+$`, found.By, "the process")
}

// failingGroups: neither dead messages nor those that never failed are among them.
func failingGroups(w *world) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := w.Queue("failing_"+kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind}})
		errs := map[string]error{
			"a": chanq.RetryAfter(time.Hour, errors.New("order 17 is gone")), "b": chanq.RetryAfter(time.Minute, errors.New("order 18 is gone")),
			"c": chanq.RetryAfter(time.Hour, nil), "d": chanq.DeadLetter(errors.New("order 19 is gone")), "e": chanq.Snooze(time.Hour, errors.New("order 20 is gone")),
		}
		ids := map[string]chanq.ID{}
		for body := range errs {
			ids[body] = testdb.Send(w, q, testdb.Texts(body)...)[0]
		}
		for _, l := range testdb.Lease(w, q, len(errs), time.Hour) {
			require.NoError(w, l.Nack(errs[l.Body]))
		}
		scheduled := 4
		if kind == chanq.KindPlain {
			testdb.Send(w, q, chanq.Message[string]{Body: "later", Delay: time.Hour})
			scheduled++
		}
		admin := testdb.Admin(q)
		w.Eventually("all are settled", func() bool {
			stats := testdb.Stats(w, q)
			return stats.Dead == 1 && stats.Scheduled == scheduled
		})
		found, err := admin.Failing(w.Soon())
		require.NoError(w, err)
		require.False(w, found.More)
		require.Len(w, found.Groups, 2)
		gone, none := found.Groups[0], found.Groups[1]
		require.Equal(w, []any{2, false, chanq.Cause(0)}, []any{gone.Messages, gone.More, gone.Cause})
		require.Equal(w, []any{1, chanqadmin.NoFingerprint, ids["c"]}, []any{none.Messages, none.Fingerprint, none.Example})
		require.Equal(w, testdb.Get(w, q, ids["d"]).Fingerprint, gone.Fingerprint, "dead ones with this error have the same")
		last := testdb.Get(w, q, gone.Example)
		require.Equal(w, []any{last.LastError, last.History[0].Ended.UTC()}, []any{gone.LastError, gone.Last})
		require.False(w, gone.First.After(gone.Last))
		for _, limit := range []int{1, 2, 100} {
			var listed []chanq.ID
			for next, pages := chanqadmin.PageToken(""), 0; pages == 0 || next != ""; pages++ {
				page, err := admin.List(w.Soon(), gone.Select(), chanqadmin.List{After: next, Limit: limit})
				require.NoError(w, err)
				for _, e := range page.Entries {
					listed = append(listed, e.ID)
				}
				next = page.Next
			}
			require.ElementsMatch(w, []chanq.ID{ids["a"], ids["b"]}, listed, limit)
		}
		_, err = admin.Purge(w.Soon(), gone.Select(), chanqadmin.Change{})
		require.ErrorContains(w, err, "no index has it")
	}
}

// historyOfMessage: the handler takes some time and fails, until the message is dead.
func historyOfMessage(w *world) {
	const took = 20 * time.Millisecond
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		q := w.Queue("history_"+kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind, MaxAttempts: 2}})
		id := testdb.Send(w, q, testdb.Texts("a")...)[0]
		require.Nil(w, testdb.Get(w, q, id).History)
		c, err := q.Consume(w.Soon(), chanq.ConsumerConfig{Name: "web-6", StopWhenIdle: true})
		require.NoError(w, err)
		require.NoError(w, c.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error {
			w.Eventually("it is known who handles it", func() bool {
				consumers, err := testdb.Admin(q).Consumers(w.Soon())
				return err == nil && len(consumers) == 1
			})
			<-time.After(took)
			return chanq.RetryAfter(0, fmt.Errorf("attempt %d", l.Attempt))
		}))
		e := testdb.Get(w, q, id)
		require.Equal(w, chanqadmin.StateDead, e.State)
		require.Len(w, e.History, 2)
		for i, a := range e.History {
			require.Equal(w, []any{"web-6", fmt.Sprintf("attempt %d", 2-i)}, []any{a.LeasedBy, a.Error})
			require.GreaterOrEqual(w, a.Took, took)
			require.Equal(w, a.Ended.Add(-a.Took), a.Started)
			require.False(w, a.Ended.After(e.EndedAt) || a.Ended.Before(e.EnqueuedAt))
		}
		require.False(w, e.History[1].Ended.After(e.History[0].Started), "the last one first")
	}
}
