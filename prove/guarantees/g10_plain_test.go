package guarantees

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

var plainOrder = []test{
	{"G10_OneProducersMessagesComeInTheirOrder", fifo},
	{"G10_PrioritiesComeFromUrgentDown", priorities},
	{"G10_WithinAPriorityTheDueTimeDecidesThenTheID", dueTime},
	{"G10_AReleasedMessageReturnsToItsPlace", releasedPlace},
	{"G10_ANackedMessageComesAfterThoseThatWereDueBefore", nackedPlace},
}

// fifo sends while a consumer claims, except on SQL Server: a claim there skips locked rows, and
// might run while the commit of an INSERT unlocks its rows one by one (docs/internals/promises.md, 10).
func fifo(w *world) {
	const count = 400
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 7})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, m := range testdb.Texts(numbers(count)...) {
			p.C() <- m
		}
	}()
	if w.Engine.Dialect == sqlserver.Dialect {
		<-sent
		require.NoError(w, p.Flush(w.Soon()))
	}
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	var got []string
	for _, l := range testdb.Take(w, c, count) {
		got = append(got, l.Body)
	}
	require.Equal(w, numbers(count), got)
}

func priorities(w *world) {
	q := w.Queue("work", chanq.Config{})
	message := func(body string, p chanq.Priority) chanq.Message[string] {
		return chanq.Message[string]{Body: body, Priority: p}
	}
	testdb.Send(w, q,
		message("low", chanq.PriorityLow), message("normal 1", chanq.PriorityNormal), message("urgent 1", chanq.PriorityUrgent),
		message("high", chanq.PriorityHigh), message("normal 2", chanq.PriorityNormal), message("urgent 2", chanq.PriorityUrgent))
	want := []string{"urgent 1", "urgent 2", "high", "normal 1", "normal 2", "low"}
	entries := w.peek(q, chanqadmin.StateReady, 10)
	for i, e := range entries {
		require.Equal(w, want[i], string(e.Body), "Peek shows the order of claims")
	}
	first := testdb.Leases(testdb.Lease(w, q, 3, time.Minute))
	require.Equal(w, want[:3], testdb.Bodies(first), "a claim of some messages takes those of the highest priority")
	require.Equal(w, chanq.PriorityUrgent, first[0].Priority)
	require.Equal(w, want[3:], testdb.Bodies(testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{}), 3)))
}

func dueTime(w *world) {
	q := w.Queue("work", chanq.Config{})
	id := func(b byte) chanq.ID { return chanq.ID{15: b} }
	testdb.Send(w, q,
		chanq.Message[string]{ID: id(9), Body: "due at once, highest ID"},
		chanq.Message[string]{ID: id(5), Body: "due at once, middle ID"},
		chanq.Message[string]{ID: id(3), Body: "due second", Delay: 20 * time.Millisecond},
		chanq.Message[string]{ID: id(2), Body: "due last", Delay: 40 * time.Millisecond},
		chanq.Message[string]{ID: id(7), Body: "due second, higher ID", Delay: 20 * time.Millisecond})
	w.Eventually("all are due", func() bool { return testdb.Stats(w, q).Ready == 5 })
	require.Equal(w, []string{"due at once, middle ID", "due at once, highest ID", "due second", "due second, higher ID", "due last"},
		testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 5, time.Minute))))
}

func releasedPlace(w *world) {
	q := w.Queue("work", chanq.Config{})
	testdb.Send(w, q, testdb.Texts("a", "b", "c")...)
	leases := testdb.Lease(w, q, 2, time.Minute)
	time.Sleep(10 * time.Millisecond) // otherwise no time passes in a bubble
	require.NoError(w, leases[1].Release())
	require.NoError(w, leases[0].Release())
	again := testdb.Leases(testdb.Lease(w, q, 3, time.Minute))
	require.Equal(w, []string{"a", "b", "c"}, testdb.Bodies(again))
	require.Equal(w, leases[0].DueAt, again[0].DueAt)
}

func nackedPlace(w *world) {
	q := w.Queue("work", chanq.Config{})
	sent := testdb.Send(w, q, testdb.Texts("a", "b")...)
	l := testdb.Lease(w, q, 1, time.Minute)[0]
	other := testdb.Get(w, q, sent[1]).DueAt
	w.Eventually("the nack is later than the other's due time", func() bool {
		require.NoError(w, l.Nack(chanq.RetryAfter(0, errors.New("later"))))
		if testdb.Get(w, q, l.ID).DueAt.After(other) {
			return true
		}
		l = testdb.Lease(w, q, 1, time.Minute)[0]
		return false
	})
	require.Equal(w, []string{"b", "a"}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 2, time.Minute))))
}
