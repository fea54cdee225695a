package guarantees

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Calls that find and change scheduled messages.
var runNow = []test{
	{"RunNowMakesScheduledMessagesDueAndLeavesOthers", runsNow},
	{"RunNowTxFollowsTheCallersTransaction", runNowTx},
	{"FindReturnsLiveMessagesByTheirDedupKeys", finds},
	{"FindTxAndCancelTxCancelAReminderWithTheCallersTransaction", findTx},
}

func runsNow(w *world) {
	q := w.Queue("work", chanq.Config{})
	retried := testdb.Send(w, q, testdb.Texts("retried")...)[0]
	require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Nack(chanq.RetryAfter(time.Hour, errBad)))
	dead := testdb.Send(w, q, testdb.Texts("dead")...)[0]
	require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Nack(chanq.DeadLetter(errBad)))
	leased := testdb.Send(w, q, testdb.Texts("leased")...)[0]
	held := testdb.Lease(w, q, 1, time.Hour)[0]
	sent := testdb.Send(w, q, chanq.Message[string]{Body: "scheduled", Delay: 24 * time.Hour}, chanq.Msg("ready"))
	ready := testdb.Get(w, q, sent[1]).DueAt
	found, err := q.RunNow(w.Soon(), retried, dead, leased, sent[0], sent[1], chanq.NewID())
	require.NoError(w, err)
	require.ElementsMatch(w, []chanq.ID{retried, sent[0]}, found)
	require.Equal(w, chanqadmin.Stats{Ready: 3, Leased: 1, Dead: 1}, testdb.Counted(w, q))
	require.Equal(w, ready, testdb.Get(w, q, sent[1]).DueAt)
	require.NoError(w, held.Ack(), "its lease is as it was")
	for _, l := range testdb.Lease(w, q, 3, time.Minute) {
		want := 0
		if l.ID == retried {
			want = 1
		}
		require.Equal(w, want, l.Failures(), l.Body)
		require.NoError(w, l.Ack())
	}

	id := testdb.Send(w, q, chanq.Message[string]{Delay: time.Hour})[0]
	done, err := testdb.Admin(q).RunNow(w.Soon(), chanqadmin.Select{IDs: []chanq.ID{id, dead}}, chanqadmin.Change{})
	require.NoError(w, err)
	require.Equal(w, []chanq.ID{id}, done.IDs)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Dead: 1}, testdb.Counted(w, q))
	_, err = testdb.Admin(q).RunNow(w.Soon(), chanqadmin.Select{State: chanqadmin.StateScheduled, All: true}, chanqadmin.Change{})
	require.ErrorContains(w, err, "Select must have IDs and nothing else")

	line := w.Queue("line", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}})
	id = testdb.Send(w, line, chanq.Message[string]{Key: "k"})[0]
	found, err = line.RunNow(w.Soon(), id)
	require.NoError(w, err)
	require.Empty(w, found)
	_, err = testdb.Admin(line).RunNow(w.Soon(), chanqadmin.Select{IDs: []chanq.ID{id}}, chanqadmin.Change{})
	require.ErrorContains(w, err, "the queue is ordered")
}

func runNowTx(w *world) {
	var sent []chanq.SentEvent
	q := w.Queue("work", chanq.Config{Hooks: chanq.Hooks{Sent: func(e chanq.SentEvent) { sent = append(sent, e) }}})
	id := testdb.Send(w, q, chanq.Message[string]{Delay: time.Hour})[0]
	before := len(sent)
	for _, end := range []error{errBad, nil} {
		err := chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			found, err := q.RunNowTx(ctx, tx, id)
			require.Equal(w, []chanq.ID{id}, found)
			return errors.Join(err, end)
		})
		if end != nil {
			require.ErrorIs(w, err, errBad)
			require.Equal(w, chanqadmin.Stats{Scheduled: 1}, testdb.Counted(w, q))
		} else {
			require.NoError(w, err)
		}
	}
	require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
	require.Len(w, sent, before, "no message was sent")
	_, err := q.RunNowTx(w.Soon(), nil, id)
	require.ErrorContains(w, err, "tx must not be nil")
}

func finds(w *world) {
	const n = 450 // more than a statement of SQL Server may have
	q := w.Queue("work", chanq.Config{})
	var ms []chanq.Message[string]
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key %d, %s", i, `{"\`))
		ms = append(ms, chanq.Message[string]{DedupKey: keys[i], Delay: time.Duration(i%2) * time.Hour})
	}
	want := testdb.Send(w, q, ms...)
	held := testdb.Lease(w, q, 2, time.Hour)
	require.NoError(w, held[0].Ack())
	found, err := q.Find(w.Soon(), append(keys, "another", "")...)
	require.NoError(w, err)
	var live []chanq.ID
	for _, id := range want {
		if id != held[0].ID {
			live = append(live, id)
		}
	}
	require.ElementsMatch(w, live, found)

	for _, bad := range []string{strings.Repeat("k", 201), "\xff"} {
		_, err = q.Find(w.Soon(), "key", bad)
		require.ErrorContains(w, err, "find work: ")
		require.Equal(w, len(bad) > 1, errors.Is(err, chanq.ErrTooLarge))
	}
	none, err := q.Find(w.Soon())
	require.NoError(w, err)
	require.Empty(w, none)
}

// findTx cancels a reminder, and sees what its own transaction has sent.
func findTx(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := testdb.Send(w, q, chanq.Message[string]{DedupKey: "remind 7", Delay: time.Hour})[0]
	require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
		found, err := q.FindTx(ctx, tx, "remind 7", "remind 8")
		require.NoError(w, err)
		require.Equal(w, []chanq.ID{id}, found)
		_, err = q.CancelTx(ctx, tx, found...)
		require.NoError(w, err)
		receipts, err := q.SendTx(ctx, tx, chanq.Message[string]{DedupKey: "remind 8"})
		require.NoError(w, err)
		found, err = q.FindTx(ctx, tx, "remind 7", "remind 8")
		require.Equal(w, []chanq.ID{receipts[0].ID}, found)
		return err
	}))
	require.Equal(w, chanqadmin.Stats{Ready: 1}, testdb.Counted(w, q))
}
