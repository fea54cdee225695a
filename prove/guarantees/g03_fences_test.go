package guarantees

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// byAHolder lists all operations of a holder on its message.
var byAHolder = []struct {
	name string
	do   func(*world, *chanq.Lease[string]) error
}{
	{"ack", func(_ *world, l *chanq.Lease[string]) error { return l.Ack() }},
	{"nack", func(_ *world, l *chanq.Lease[string]) error { return l.Nack(chanq.RetryAfter(0, errors.New("again"))) }},
	{"release", func(_ *world, l *chanq.Lease[string]) error { return l.Release() }},
	{"dead-letter", func(_ *world, l *chanq.Lease[string]) error { return l.Nack(chanq.DeadLetter(errors.New("enough"))) }},
	{"extend", func(w *world, l *chanq.Lease[string]) error { return l.Extend(w.Soon(), time.Hour) }},
	{"ack in a transaction", func(w *world, l *chanq.Lease[string]) error {
		tx := w.begin(w.DB)
		outcome := l.AckTx(w.Soon(), tx)
		require.NoError(w, tx.Commit())
		return outcome
	}},
}

// requireSole requires that only the current holder can change the message. Operations of a former
// holder report a lost lease and change nothing, the message is not delivered to another consumer,
// and the holder finally acks it.
func (w *world) requireSole(q *chanq.Queue[string], former, holder *chanq.Lease[string], name string, do func(*world, *chanq.Lease[string]) error) {
	w.Helper()
	state := func() chanqadmin.Entry {
		e := testdb.Get(w, q, holder.ID)
		e.LeasedBy = "" // SQL Server omits the name while the consumer's row is being written
		return e
	}
	before := state()
	err := do(w, former)
	if err == nil {
		err = former.Wait(w.Soon())
	}
	require.ErrorIs(w, err, chanq.ErrLeaseLost, name)
	require.Equal(w, before, state(), name)
	testdb.RequireNone(w, q, name)
	require.NoError(w, holder.Ack(), name)
	require.NoError(w, holder.Wait(w.Soon()), name)
}

func formerLife(w *world) {
	for i, x := range byAHolder {
		q := w.Queue(fmt.Sprintf("life%d", i), chanq.Config{})
		id := testdb.Send(w, q, testdb.Texts("first life")...)[0]
		former := testdb.Lease(w, q, 1, formerLease)[0]
		require.NoError(w, testdb.Lease(w, q, 1, time.Minute)[0].Ack(), "acked by the next holder")
		testdb.Send(w, q, chanq.Message[string]{ID: id, Body: "second life"})
		holder := testdb.Lease(w, q, 1, time.Minute)[0]
		require.Equal(w, "second life", holder.Body)
		w.requireSole(q, former.Lease, holder.Lease, x.name, x.do)
	}
}

func fencesOfOneID(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := chanq.NewID()
	given := map[int64]bool{}
	for life := range 3 {
		testdb.Send(w, q, chanq.Message[string]{ID: id, Body: "again and again"})
		last := testdb.Get(w, q, id).Fence
		for _, s := range []string{"nack", "release", "release", "ack"} {
			l := testdb.Lease(w, q, 1, time.Minute)[0]
			fence := testdb.Get(w, q, id).Fence
			require.Greater(w, fence, last, "life %d, before the %s", life, s)
			require.False(w, given[fence], "life %d, before the %s: fence %d was given before", life, s, fence)
			given[fence] = true
			switch s {
			case "nack":
				require.NoError(w, l.Nack(chanq.RetryAfter(0, nil)))
			case "release":
				require.NoError(w, l.Release())
			case "ack":
				require.NoError(w, l.Ack())
				continue
			}
			last = testdb.Get(w, q, id).Fence
			require.Greater(w, last, fence, "life %d, after the %s", life, s)
		}
	}
}

// forgottenClaim is a failover to a lagging standby, which has the messages but not their claims.
func forgottenClaim(w *world) {
	if w.Engine.Copy == nil {
		w.Skipf("NOT TESTED on %s: its databases cannot be copied", w.Engine.Name)
	}
	queues := make([]*chanq.Queue[string], len(byAHolder))
	for i := range queues {
		queues[i] = w.Queue(fmt.Sprintf("forgot%d", i), chanq.Config{})
		testdb.Send(w, queues[i], testdb.Texts("a")...)
	}
	w.disconnect()
	standby, err := w.Engine.Connect(w.Engine.Copy(w.T, w.Address))
	require.NoError(w, err)
	forgotten := make([]*chanq.Lease[string], len(queues))
	for i, q := range queues {
		forgotten[i] = testdb.Lease(w, q, 1, time.Minute)[0].Lease
	}
	w.Faults.Redirect(standby, w.Failure(sqlbatch.Unknown))
	for i, x := range byAHolder {
		holder := testdb.Lease(w, queues[i], 1, time.Minute)[0]
		require.Equal(w, forgotten[i].ID, holder.ID)
		w.requireSole(queues[i], forgotten[i], holder.Lease, x.name, x.do)
	}
}

// disconnect closes idle connections and requires that none is left.
func (w *world) disconnect() {
	w.Helper()
	w.DB.SetMaxIdleConns(-1)
	w.Eventually("no connection is open", func() bool {
		now, _ := w.Faults.Conns()
		return now == 0
	})
	w.DB.SetMaxIdleConns(2)
}
