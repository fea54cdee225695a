package guarantees

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// The kinds of queues in Migrate, Open, sends and the operator's API. Guarantees of ordered queues for consumers are in g10_ordered_test.go.
var queueKinds = []test{
	{"AQueueIsOpenedAsTheKindThatItIs", kindsDiffer},
	{"AQueueMayHaveTheNameOfATableOfChanq", namedAsTables},
	{"TheNumberOfSlotsOfAQueueIsPermanent", slotsDiffer},
	{"MigrateChangesDeadKey", deadKeyDiffers},
	{"ADroppedQueueMayBeCreatedAgainAsAnotherKind", dropOrdered},
	{"AMessageOfAnOrderedQueueHasNoPriorityAndNoDelay", orderedMessages},
	{"OperatorsSeeAnOrderedQueueInItsOrder", orderedPages},
	{"OperatorsSeeTheSlotsOfAnOrderedQueue", slotStats},
	{"G10_BatchesOfAnOrderedQueueAreNumberedInOrder", orderedGroups},
}

var orderedConfig = chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}}

// opens returns the errors of opening and of migrating the queue with cfg.
func (w *world) opens(cfg chanq.Config) (open, migrate error) {
	_, open = chanq.Open[string](w.Soon(), w.DB, "work", cfg)
	return open, chanq.Migrate(w.Soon(), w.DB, "work", cfg)
}

// namedAsTables creates queues with the names of all tables, views and procedures, and with names that a later version might use.
func namedAsTables(w *world) {
	names := []string{
		"work", "queues", "consumers", "slots", "samples", "utf8", "schedules", "work_dead", "work_done", "work_messages", "work_send",
	}
	for _, name := range names {
		testdb.Send(w, w.Queue(name, chanq.Config{}), testdb.Texts(name)...)
		w.face(name, chanq.Config{})
	}
	for _, name := range names {
		l := testdb.Lease(w, testdb.OpenOn[string](w, w.DB, name, chanq.Config{}), 1, time.Hour)[0]
		require.Equal(w, name, l.Body)
		require.NoError(w, l.Ack())
	}
}

func kindsDiffer(w *world) {
	w.Queue("work", orderedConfig)
	open, migrate := w.opens(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindPlain}})
	for _, err := range []error{open, migrate} {
		require.ErrorIs(w, err, chanq.ErrSpec)
		require.ErrorContains(w, err, "Spec.Kind is plain, and the database has ordered; it cannot be changed")
	}
	open, migrate = w.opens(chanq.Config{})
	require.NoError(w, open, "the stored kind is used")
	require.NoError(w, migrate)
	found, err := chanq.StoredConfig(w.Soon(), w.DB, "work", chanq.Config{Spec: chanq.Spec{MaxBody: 5}})
	require.NoError(w, err)
	require.Equal(w, w.Engine.ChanqDialect(), found.Dialect)
	require.Equal(w, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}).Spec(), found.Spec)
	require.Equal(w, 4, found.Slots)

	w.Queue("plain", chanq.Config{})
	_, err = chanq.Open[string](w.Soon(), w.DB, "plain", orderedConfig)
	require.ErrorIs(w, err, chanq.ErrSpec)
	require.ErrorContains(w, err, "Spec.Kind is ordered, and the database has plain")
	require.ErrorIs(w, chanq.Migrate(w.Soon(), w.DB, "plain", orderedConfig), chanq.ErrSpec)
	testdb.Send(w, testdb.OpenOn[string](w, w.DB, "plain", chanq.Config{}), testdb.Texts("it is unchanged")...)
	found, err = chanq.StoredConfig(w.Soon(), w.DB, "plain", orderedConfig)
	require.NoError(w, err)
	require.Equal(w, chanq.KindPlain, found.Kind)
	_, err = chanq.StoredConfig(w.Soon(), w.DB, "nowhere", chanq.Config{})
	require.ErrorIs(w, err, chanq.ErrNoSchema)
}

func slotsDiffer(w *world) {
	w.Queue("work", orderedConfig)
	open, migrate := w.opens(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 5}})
	for _, err := range []error{open, migrate} {
		require.ErrorIs(w, err, chanq.ErrSpec)
		require.ErrorContains(w, err, "Spec.Slots is 5, and the database has 4")
	}
	open, migrate = w.opens(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	require.NoError(w, open, "the stored number is used")
	require.NoError(w, migrate)
	q, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	require.NoError(w, err)
	for i := range 20 {
		testdb.Send(w, q, chanq.Message[string]{Key: fmt.Sprint("key", i)})
	}
	entries := w.peek(q, chanqadmin.StateReady, 20)
	for _, e := range entries {
		require.Equal(w, sqlbatch.SlotOf(e.Key, e.ID, 4), e.Slot, "the stored number of slots is used")
	}
	open, _ = w.opens(chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, MaxKeys: 5}})
	require.ErrorContains(w, open, "Spec.MaxKeys is 5, and the database has unlimited")
	w.Queue("many", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	found, err := chanq.StoredConfig(w.Soon(), w.DB, "many", chanq.Config{})
	require.NoError(w, err)
	require.Equal(w, 64, found.Slots)
}

func deadKeyDiffers(w *world) {
	w.Queue("work", orderedConfig)
	holds := orderedConfig
	holds.DeadKey = chanq.DeadKeyHolds
	_, err := chanq.Open[string](w.Soon(), w.DB, "work", holds)
	require.ErrorIs(w, err, chanq.ErrSpec)
	require.ErrorContains(w, err, "Spec.DeadKey is holds, and the database has opens; leave the field unset, or change the queue by chanq.Migrate")
	require.NoError(w, chanq.Migrate(w.Soon(), w.DB, "work", holds))
	require.Equal(w, chanq.DeadKeyHolds, testdb.OpenOn[string](w, w.DB, "work", orderedConfig).Spec().DeadKey)
	opens := orderedConfig
	opens.DeadKey = chanq.DeadKeyOpens
	_, err = chanq.Open[string](w.Soon(), w.DB, "work", opens)
	require.ErrorIs(w, err, chanq.ErrSpec)
}

func dropOrdered(w *world) {
	q := w.Queue("work", orderedConfig)
	testdb.Send(w, q, chanq.Message[string]{Key: "k"})
	require.ErrorIs(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}), chanq.ErrNotEmpty)
	require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}))
	require.ErrorIs(w, chanqadmin.Drop(w.Soon(), w.Tables(), "work", chanq.Config{}, chanqadmin.Change{}), chanq.ErrNoSchema)
	testdb.Send(w, w.Queue("work", chanq.Config{}), testdb.Texts("plain")...)
	require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "work", orderedConfig, chanqadmin.Change{}))
	testdb.Send(w, w.Queue("work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 7}}), chanq.Message[string]{Key: "k"})
}

func orderedMessages(w *world) {
	q := w.Queue("work", orderedConfig)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	long := strings.Repeat("k", 200)
	for _, c := range []struct {
		m    chanq.Message[string]
		says string
	}{
		{chanq.Message[string]{Priority: chanq.PriorityHigh}, "Message.Priority is high: must be unset, since queue work is ordered"},
		{chanq.Message[string]{Delay: time.Second}, "Message.Delay is 1s: must be 0, since queue work is ordered"},
		{chanq.Message[string]{Key: long + "k"}, "Message.Key is 201 bytes: must be at most 200"},
		{chanq.Message[string]{Key: "a\x00b"}, "must be UTF-8 without NUL"},
		{chanq.Message[string]{Key: "\xff"}, "must be UTF-8 without NUL"},
	} {
		_, err := p.Send(w.Soon(), c.m)
		require.ErrorContains(w, err, c.says)
		tx := w.begin(w.DB)
		_, err = q.SendTx(w.Soon(), tx, c.m)
		require.ErrorContains(w, err, c.says)
		require.NoError(w, tx.Rollback())
	}
	_, err := testdb.Produce(w, w.Queue("plain", chanq.Config{}), chanq.ProducerConfig{}).Send(w.Soon(), chanq.Message[string]{Key: "k"})
	require.ErrorContains(w, err, `Message.Key is "k": must be empty, since queue plain is plain`)
	_, err = q.Producer(w.Soon(), chanq.ProducerConfig{InFlight: 2})
	require.ErrorContains(w, err, "ProducerConfig.InFlight is 2: must be 1, since the queue is ordered")

	for i, key := range []string{long, "", "Ä"} {
		receipt, err := p.Send(w.Soon(), chanq.Message[string]{Key: key, Body: "b", DedupKey: fmt.Sprint("d", i), TTL: time.Hour})
		require.NoError(w, err)
		e, err := testdb.Admin(q).Get(w.Soon(), receipt.ID)
		require.NoError(w, err)
		require.Equal(w, key, e.Key)
		require.Equal(w, sqlbatch.SlotOf(key, receipt.ID, 4), e.Slot)
	}
}

// orderedPages sends to all slots. Pages are in the order of the sends.
func orderedPages(w *world) {
	const n = 30
	q := w.Queue("work", orderedConfig)
	for i := range n {
		testdb.Send(w, q, chanq.Message[string]{Key: fmt.Sprint(i % 7), Body: fmt.Sprintf("%06d", i)})
	}
	require.Equal(w, numbersOf(n), w.pages(q, 7))
	purged := w.purge(q, chanqadmin.StateReady)
	require.Equal(w, n, purged)
	require.Equal(w, chanqadmin.Stats{}, testdb.Counted(w, q))
}

// pages reads all ready messages in pages of the given size, once with and once without their bodies.
func (w *world) pages(q *chanq.Queue[string], page int) (bodies []string) {
	w.Helper()
	var with, without []chanq.ID
	for _, full := range []bool{true, false} {
		list := chanqadmin.List{Limit: page, Bodies: full}
		for pages := 0; pages == 0 || list.After != ""; pages++ {
			require.Less(w, pages, 10_000, "the list does not end")
			found, err := testdb.Admin(q).List(w.Soon(), chanqadmin.Select{State: chanqadmin.StateReady}, list)
			require.NoError(w, err)
			for _, e := range found.Entries {
				if full {
					with, bodies = append(with, e.ID), append(bodies, string(e.Body))
				} else {
					without = append(without, e.ID)
				}
			}
			list.After = found.Next
		}
	}
	require.Equal(w, with, without)
	return bodies
}

func numbersOf(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%06d", i))
	}
	return list
}

func slotStats(w *world) {
	q := w.Queue("work", orderedConfig)
	_, err := testdb.Admin(w.Queue("plain", chanq.Config{})).Slots(w.Soon())
	require.ErrorContains(w, err, "plain")
	for i := range 6 {
		testdb.Send(w, q, chanq.Message[string]{Key: []string{"a", "a", "b"}[i%3]})
	}
	slots, err := testdb.Admin(q).Slots(w.Soon())
	require.NoError(w, err)
	require.Len(w, slots, 4)
	total := 0
	for i, s := range slots {
		require.Equal(w, i, s.Slot)
		require.Empty(w, s.Owner, "there is no consumer")
		require.Zero(w, s.Waiting)
		total += s.Messages
		require.Equal(w, s.Messages > 0, s.TopKey != "")
	}
	require.Equal(w, 6, total)
	a := slots[sqlbatch.SlotOf("a", [16]byte{}, 4)]
	require.Equal(w, "a", a.TopKey)
	require.Equal(w, 4, a.TopKeyMessages)
	require.GreaterOrEqual(w, a.Oldest, time.Duration(0))
}

// orderedGroups holds the first operation of a batch, then its INSERT, then its commit, while later batches are full: these get higher
// numbers.
func orderedGroups(w *world) {
	st := w.Engine.Dialect.Queue(sqlbatch.Names{Queue: "work", Slots: 4})
	begins := func(op faultdb.Op) bool {
		begun := st.InOwnTx().Begun()
		return op.Kind == faultdb.Exec && begun.Text != "" && testdb.Runs(op, begun)
	}
	stores := func(op faultdb.Op) bool {
		return op.Kind == faultdb.Exec && (testdb.RunsStore(op, groupRows, st.InOwnTx().EnqueueBegun) || testdb.RunsStore(op, groupRows, st.Enqueue))
	}
	for i, meant := range []func(faultdb.Op) bool{begins, stores, func(op faultdb.Op) bool { return op.Kind == faultdb.Commit }} {
		w.Heal()
		if w.DB != nil {
			require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), "work", orderedConfig, chanqadmin.Change{}))
		}
		q := w.Queue("work", orderedConfig)
		if w.oneWriter() && i != 1 {
			continue // no transaction per batch
		}
		if i == 0 && st.InOwnTx().Begun().Text == "" {
			continue // the INSERT draws the number
		}
		w.holdFirst(q, meant)
	}
}

// holdFirst sends batches of one key while the first operation that meant accepts is held, until the other batches have had the time to
// overtake it.
func (w *world) holdFirst(q *chanq.Queue[string], meant func(faultdb.Op) bool) {
	const groups = 4
	gate := make(chan struct{})
	var met atomic.Int32
	p := testdb.Produce(w, q, groupConfig)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if meant(op) && met.Add(1) == 1 {
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	messages := testdb.Texts(numbersOf(groups * groupRows)...)
	for i := range messages {
		messages[i].Key = "k"
	}
	sent := make(chan error, 1)
	ctx := w.Soon()
	go func() {
		_, err := p.SendBatch(ctx, messages...)
		sent <- err
	}()
	w.Eventually("the first group is held", func() bool { return met.Load() > 0 })
	began := time.Now()
	w.Eventually("others had the time", func() bool { return time.Since(began) > 50*time.Millisecond })
	close(gate)
	require.NoError(w, <-sent)
	require.Equal(w, numbersOf(groups*groupRows), w.pages(q, 100))
}
