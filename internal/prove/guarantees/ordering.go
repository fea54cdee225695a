package guarantees

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

var ordering = []test{
	{"G10_OneProducersMessagesComeInTheirOrder", fifo},
	{"G10_AProducersGroupsDoNotOvertakeOneThatIsRepeated", overtaking},
	{"G10_PrioritiesComeFromUrgentDown", priorities},
	{"G10_WithinAPriorityTheDueTimeDecidesThenTheID", dueTime},
	{"G10_AReleasedMessageComesBackToItsPlace", releasedPlace},
	{"G10_ANackedMessageComesAfterThoseThatWereDueBefore", nackedPlace},
	{"OrderAnyDeliversEveryMessage", orderAny},
}

// fifo sends while a consumer claims, except on SQL Server: a claim there passes
// over rows that are locked, and may meet an INSERT while its commit gives them
// free one by one (docs/guarantees.md, 10).
func fifo(w *world) {
	const count = 400
	q := w.queue("work", chanq.Config{})
	p := produce(w, q, chanq.ProducerConfig{BatchRows: 7})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, m := range texts(numbers(count)...) {
			p.C() <- m
		}
	}()
	if w.engine.Dialect == sqlserver.Dialect {
		<-sent
		require.NoError(w, p.Flush(w.soon()))
	}
	c := start(w, q, chanq.ConsumerConfig{})
	var got []string
	for _, l := range take(w, c, count) {
		got = append(got, l.Body)
	}
	require.Equal(w, numbers(count), got)
}

func overtaking(w *world) {
	q := w.queue("work", chanq.Config{})
	p := produce(w, q, chanq.ProducerConfig{BatchRows: 1})
	st := w.statements("work")
	deadlock := w.failure(sqlbatch.RolledBack)
	failures := 0
	w.faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if enqueues(op, st) && failures < 5 {
			failures++
			return faultdb.Fail(deadlock)
		}
		return faultdb.Fault{}
	})
	for _, m := range texts(numbers(10)...) {
		p.C() <- m
	}
	require.NoError(w, p.Close(w.soon()))
	require.Equal(w, numbers(10), bodies(lease(w, q, 10, time.Minute)))
}

func priorities(w *world) {
	q := w.queue("work", chanq.Config{})
	message := func(body string, p chanq.Priority) chanq.Message[string] {
		return chanq.Message[string]{Body: body, Priority: p}
	}
	send(w, q,
		message("low", chanq.PriorityLow), message("normal 1", chanq.PriorityNormal), message("urgent 1", chanq.PriorityUrgent),
		message("high", chanq.PriorityHigh), message("normal 2", chanq.PriorityNormal), message("urgent 2", chanq.PriorityUrgent))
	want := []string{"urgent 1", "urgent 2", "high", "normal 1", "normal 2", "low"}
	entries, err := q.Peek(w.soon(), chanq.StateReady, 10)
	require.NoError(w, err)
	for i, e := range entries {
		require.Equal(w, want[i], string(e.Body), "Peek shows the order of claims")
	}
	first := lease(w, q, 3, time.Minute)
	require.Equal(w, want[:3], bodies(first), "a claim that takes only some takes the highest")
	require.Equal(w, chanq.PriorityUrgent, first[0].Priority)
	require.Equal(w, want[3:], bodies(lease(w, q, 3, time.Minute)))
}

func dueTime(w *world) {
	q := w.queue("work", chanq.Config{})
	id := func(b byte) chanq.ID { return chanq.ID{15: b} }
	send(w, q,
		chanq.Message[string]{ID: id(9), Body: "due at once, highest ID"},
		chanq.Message[string]{ID: id(5), Body: "due at once, middle ID"},
		chanq.Message[string]{ID: id(3), Body: "due second", Delay: 20 * time.Millisecond},
		chanq.Message[string]{ID: id(2), Body: "due last", Delay: 40 * time.Millisecond},
		chanq.Message[string]{ID: id(7), Body: "due second, higher ID", Delay: 20 * time.Millisecond})
	w.eventually("all are due", func() bool { return stats(w, q).Ready == 5 })
	require.Equal(w, []string{"due at once, middle ID", "due at once, highest ID", "due second", "due second, higher ID", "due last"},
		bodies(lease(w, q, 5, time.Minute)))
}

func releasedPlace(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts("a", "b", "c")...)
	leases := lease(w, q, 2, time.Minute)
	require.NoError(w, leases[1].Release())
	require.NoError(w, leases[0].Release())
	again := lease(w, q, 3, time.Minute)
	require.Equal(w, []string{"a", "b", "c"}, bodies(again))
	require.Equal(w, leases[0].DueAt, again[0].DueAt)
}

func nackedPlace(w *world) {
	q := w.queue("work", chanq.Config{})
	sent := send(w, q, texts("a", "b")...)
	l := lease(w, q, 1, time.Minute)[0]
	other := get(w, q, sent[1]).At
	w.eventually("the nack is later than the other's due time", func() bool {
		require.NoError(w, l.Nack(0, errors.New("later")))
		if get(w, q, l.ID).At.After(other) {
			return true
		}
		l = lease(w, q, 1, time.Minute)[0]
		return false
	})
	require.Equal(w, []string{"b", "a"}, bodies(lease(w, q, 2, time.Minute)))
}

func orderAny(w *world) {
	q := w.queue("work", chanq.Config{})
	send(w, q, texts(numbers(100)...)...)
	c := start(w, q, chanq.ConsumerConfig{Order: chanq.OrderAny})
	seen := map[string]bool{}
	for _, l := range take(w, c, 100) {
		seen[l.Body] = true
		require.NoError(w, l.Ack())
	}
	require.Len(w, seen, 100)
	require.NoError(w, c.Flush(w.soon()))
	require.Zero(w, counted(w, q))
}
