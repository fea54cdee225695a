package chanqadmin_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// lines returns the changes of a queue, the first one first, in short.
func lines(w *testdb.World, queue string) (list []string) {
	w.Helper()
	found, err := chanqadmin.Log(w.Soon(), w.DB, queue, 100, chanq.Config{})
	require.NoError(w, err)
	for _, l := range found {
		require.False(w, l.At.IsZero())
		line := fmt.Sprintf("%s by %s of %d (%s) because of %q", l.What, l.Actor, l.Messages, l.Which, l.Reason)
		if l.Ended.IsZero() {
			line += ", not ended"
		}
		if l.Error != "" {
			line += ", failed"
		}
		list = append([]string{line}, list...)
	}
	return list
}

func TestTheLogHasEachChangeOfAQueue(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		admin := testdb.Admin(q)
		ids := testdb.Send(w, q, chanq.Message[string]{Body: "a"}, chanq.Message[string]{Body: "b"}, chanq.Message[string]{Body: "c", Delay: time.Hour})
		leases := testdb.Lease(w, q, 1, time.Minute)
		require.NoError(w, leases[0].Nack(chanq.DeadLetter(errors.New("no"))))
		by := func(reason string) chanqadmin.Change {
			return chanqadmin.Change{Actor: "ada", Reason: reason, Unlogged: func(err error) { require.NoError(w, err) }}
		}
		require.NoError(w, admin.Pause(w.Soon(), by("the printer burns")))
		require.NoError(w, admin.Resume(w.Soon(), by("")))
		require.NoError(w, admin.Configure(w.Soon(), chanq.Spec{MaxAttempts: 7}, by("")))
		changed, err := admin.Redrive(w.Soon(), chanqadmin.Select{Cause: chanq.CauseRejected}, by("it is there now"))
		require.NoError(w, err)
		require.Equal(w, 1, changed.Messages)
		_, err = admin.RunNow(w.Soon(), chanqadmin.Select{IDs: ids[2:]}, by(""))
		require.NoError(w, err)
		_, err = admin.Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady, All: true}, chanqadmin.Change{DryRun: true})
		require.NoError(w, err)
		_, err = admin.Cancel(w.Soon(), chanqadmin.Select{IDs: ids[:1]}, by(""))
		require.NoError(w, err)
		_, err = admin.Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady, All: true}, by(""))
		require.NoError(w, err)
		other := w.Queue("other", chanq.Config{})
		require.NoError(w, testdb.Admin(other).Pause(w.Soon(), by("")))
		ended, cancel := context.WithCancel(w.Soon())
		cancel()
		require.Error(w, testdb.Admin(other).Resume(ended, by("")))
		require.NoError(w, chanqadmin.Drop(w.Soon(), w.Tables(), "orders", chanq.Config{}, by("")))
		require.Equal(w, []string{
			`pause by ada of 0 () because of "the printer burns"`,
			`resume by ada of 0 () because of ""`,
			`configure by ada of 0 (MaxAttempts=7) because of ""`,
			`redrive by ada of 1 (state=dead cause=rejected) because of "it is there now"`,
			fmt.Sprintf(`run now by ada of 1 (state=scheduled ids=1 %s) because of ""`, ids[2]),
			fmt.Sprintf(`cancel by ada of 1 (state=ready ids=1 %s) because of ""`, ids[0]),
			`purge by ada of 2 (state=ready) because of ""`,
			`drop by ada of 0 () because of ""`,
		}, lines(w, "orders"))
		require.Len(w, lines(w, ""), 9, "of all queues")
	})
}

// A program that crashes during a change leaves a change that has not ended, and one that fails its error and how far it came.
func TestTheLogHasChangesThatDidNotSucceed(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a", "b")...)
		admin := testdb.Admin(q)
		purge := func(ctx context.Context, progress func(int), unlogged func(error)) error {
			_, err := admin.Purge(ctx, chanqadmin.Select{State: chanqadmin.StateReady, All: true}, chanqadmin.Change{
				Actor: "ada", Limit: 2, PerSecond: 1, Progress: progress, Unlogged: unlogged,
			})
			return err
		}
		ctx, cancel := context.WithCancel(w.Soon())
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "chanq__log") && strings.Contains(op.Text, "UPDATE") {
				return faultdb.Fail(errors.New("the program has crashed"))
			}
			return f
		})
		said := ""
		require.NoError(w, purge(ctx, nil, func(err error) { said = err.Error() }))
		require.Contains(w, said, "the log of changes of orders: ")
		w.Faults.Inject(nil)
		testdb.Send(w, q, testdb.Texts("a", "b")...)
		require.Error(w, purge(ctx, func(int) { cancel() }, func(err error) { require.NoError(w, err) }))
		require.Equal(w, []string{
			`purge by ada of 0 (state=ready) because of "", not ended`,
			`purge by ada of 1 (state=ready) because of "", failed`,
		}, lines(w, "orders"))
	})
}

func TestAChangeIsMadeWithoutItsLog(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a")...)
		w.Define("DROP TABLE " + chanq.Names{Dialect: w.Engine.ChanqDialect()}.SQL("{chanq__log}"))
		_, err := chanqadmin.Log(w.Soon(), w.DB, "orders", 1, chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "run chanq.Migrate")
		said := 0
		const actor = "ada"
		change := chanqadmin.Change{Actor: actor, Unlogged: func(err error) { require.ErrorContains(w, err, "chanq__log"); said++ }}
		done, err := testdb.Admin(q).Purge(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady, All: true}, change)
		require.NoError(w, err)
		require.Equal(w, 1, done.Messages)
		require.NoError(w, testdb.Admin(q).Pause(w.Soon(), change))
		require.Equal(w, 2, said)
		require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{}), "nobody asked")
		require.NoError(w, w.Migrate("orders", chanq.Config{}))
		require.NoError(w, chanqadmin.Drop(w.Soon(), w.Tables(), "orders", chanq.Config{}, change))
		require.Equal(w, 2, said, "Migrate has made the table again")
		require.Equal(w, []string{`drop by ` + actor + ` of 0 () because of ""`}, lines(w, "orders"))
	})
}

func TestMigrateMakesATableAgainThatAllQueuesShare(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		w.Queue("orders", chanq.Config{})
		for _, table := range []string{"consumers", "samples", "log"} {
			w.Define("DROP TABLE " + chanq.Names{Dialect: w.Engine.ChanqDialect()}.SQL("{chanq__"+table+"}"))
			require.NoError(w, w.Migrate("orders", chanq.Config{}))
			w.Exec(chanq.Names{Dialect: w.Engine.ChanqDialect()}.SQL("DELETE FROM {chanq__" + table + "}"))
		}
	})
}

func TestTheLogIsBounded(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		q := testdb.Admin(w.Queue("orders", chanq.Config{}))
		other := testdb.Admin(w.Queue("other", chanq.Config{}))
		require.NoError(w, other.Pause(w.Soon(), chanqadmin.Change{Reason: "stays"}))
		names := chanq.Names{Dialect: w.Engine.ChanqDialect()}
		var values []string
		for i := range 1100 { // with IDs before all others
			values = append(values, fmt.Sprintf("('00000000-0000-7000-8000-%012d', 'orders', %s - CAST(%d AS bigint), 'eve', 'pause', '', '%d')", i, names.SQL("{now}"), time.Hour.Milliseconds(), i))
		}
		old := "('00000000-%s-7000-8000-000000000000', '%s', %s - CAST(%d AS bigint), 'eve', 'pause', '', 'old')"
		values = append(values, fmt.Sprintf(old, "1000", "orders", names.SQL("{now}"), (91*24*time.Hour).Milliseconds()))
		values = append(values, fmt.Sprintf(old, "1001", "dropped", names.SQL("{now}"), (91*24*time.Hour).Milliseconds()))
		values = append(values, fmt.Sprintf(old, "1002", "dropped", names.SQL("{now}"), (89*24*time.Hour).Milliseconds()))
		for i := 0; i < len(values); i += 600 {
			w.Exec(names.SQL("INSERT INTO {chanq__log} (id, queue, at, actor, what, which, reason) VALUES ") + strings.Join(values[i:min(i+600, len(values))], ", "))
		}
		require.NoError(w, q.Pause(w.Soon(), chanqadmin.Change{Reason: "new", Unlogged: func(err error) { require.NoError(w, err) }}))
		found, err := chanqadmin.Log(w.Soon(), w.DB, "orders", 10_000, chanq.Config{})
		require.NoError(w, err)
		require.Equal(w, "new", found[0].Reason)
		require.Equal(w, "1099", found[1].Reason, "the old one is gone")
		require.Equal(w, "102", found[len(found)-1].Reason)
		require.Len(w, found, 999, "with the old one there were 1,000")
		found, err = chanqadmin.Log(w.Soon(), w.DB, "other", 10_000, chanq.Config{})
		require.NoError(w, err)
		require.Len(w, found, 1)
		found, err = chanqadmin.Log(w.Soon(), w.DB, "dropped", 10_000, chanq.Config{})
		require.NoError(w, err)
		require.Len(w, found, 1, "of a queue that nobody changes any more, the one of 89 days")
	})
}

// However many changes of other queues there are.
func TestAChangeAndTheLogOfAQueueReadNoChangesOfOthers(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := testdb.Admin(w.Queue("orders", chanq.Config{}))
		var texts []string
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "chanq__log") && !slices.Contains(texts, op.Text) {
				texts = append(texts, op.Text)
			}
			return f
		})
		require.NoError(w, q.Pause(w.Soon(), chanqadmin.Change{}))
		lines(w, "orders")
		w.Faults.Inject(nil)
		require.Len(w, texts, 5)
		for _, text := range texts {
			args := make([]any, len(regexp.MustCompile(`\?\d`).FindAllString(text, -1)))
			rows, err := w.DB.QueryContext(w.Soon(), "EXPLAIN QUERY PLAN "+text, args...)
			require.NoError(w, err)
			for rows.Next() {
				var id, parent, unused int
				var step string
				require.NoError(w, rows.Scan(&id, &parent, &unused, &step))
				require.NotContains(w, step, "SCAN main.chanq__log", text)
				require.NotContains(w, step, "ORDER BY", text)
			}
			require.NoError(w, errors.Join(rows.Err(), rows.Close()))
		}
	})
}

func TestTheLogRefusesWrongArguments(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		for _, limit := range []int{-1, 0, 10_001} {
			_, err := chanqadmin.Log(w.Soon(), w.Open(), "", limit, chanq.Config{})
			require.ErrorContains(w, err, "must be from 1 to 10,000")
		}
		_, err := chanqadmin.Log(w.Soon(), w.Open(), "No Name", 1, chanq.Config{})
		require.ErrorContains(w, err, "queue name")
		_, err = chanqadmin.Log(w.Soon(), nil, "", 1, chanq.Config{})
		require.ErrorContains(w, err, "db is nil")
		for _, c := range []chanqadmin.Change{{Limit: 1}, {PerSecond: 1}, {DryRun: true}} {
			q := testdb.Admin(w.Queue("orders", chanq.Config{}))
			require.ErrorContains(w, q.Resume(w.Soon(), c), "must be zero")
			require.ErrorContains(w, q.Configure(w.Soon(), chanq.Spec{}, c), "must be zero")
			require.ErrorContains(w, chanqadmin.Drop(w.Soon(), w.DB, "orders", chanq.Config{}, c), "must be zero")
		}
	})
}
