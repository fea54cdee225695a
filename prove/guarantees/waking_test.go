package guarantees

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

var waking = []test{
	{"ACommitAtAnyMomentWakesAConsumerThatIsAboutToSleep", wakingAtAnyMoment},
	{"EveryChangeThatLeavesSomethingToClaimNotifies", ringing},
	{"ANotifierWhoseChannelsAreClosedIsAskedOncePerSecond", deafNotifiers},
	{"AConsumerThatStopsPassesOnItsNotification", handingOn},
	{"APollingConsumerLeavesAMessageToTheOneThatIsNotified", leavingToOthers},
}

// alone is a configuration whose consumers are notified only by this process.
var alone = chanq.Config{Notifier: chanq.NoNotifier{}}

// board is a Notifier between the *sql.DBs of a test. A notification reaches only current
// listeners.
type board struct {
	before, after func() // called by Listen before and after the registration; nil does nothing
	late          bool   // Listen returns before it registers

	here, there chanq.Notifier // Notifiers of the two *sql.DBs, to listen and to notify; nil: this board itself

	mu            sync.Mutex // guards the fields below
	ears          []chan struct{}
	notifications int
	listened      int
	hearer        func() // completes the registration of a late Listen
}

func (b *board) Notify(n chanq.Notification) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notifications++
	if b.there != nil {
		b.there.Notify(n)
		return
	}
	for _, ear := range b.ears {
		select {
		case ear <- struct{}{}:
		default:
		}
	}
}

func (b *board) Listen(queue string, slots []int) (<-chan struct{}, func()) {
	if b.here != nil {
		return b.listenThere(queue, slots)
	}
	ear := make(chan struct{}, 1)
	hear := func() {
		if b.before != nil {
			b.before()
		}
		b.mu.Lock()
		b.ears = append(b.ears, ear)
		b.mu.Unlock()
		ear <- struct{}{}
		if b.after != nil {
			b.after()
		}
	}
	b.mu.Lock()
	b.listened++
	b.hearer = hear
	b.mu.Unlock()
	if !b.late {
		hear()
	}
	return ear, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ears = slices.DeleteFunc(b.ears, func(c chan struct{}) bool { return c == ear })
	}
}

func (b *board) listenThere(queue string, slots []int) (<-chan struct{}, func()) {
	b.mu.Lock()
	b.listened++
	b.mu.Unlock()
	b.before()
	defer b.after()
	return b.here.Listen(queue, slots)
}

func (b *board) count() (notified, listened, listening int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notifications, b.listened, len(b.ears)
}

// seldom makes a consumer poll only after a notification.
var seldom = chanq.ConsumerConfig{PollEvery: time.Hour}

// wakingAtAnyMoment: a consumer that has found nothing begins to listen, polls and sleeps. If its
// registration completes only after the poll, it polls again. A message might be committed at each
// of these moments, and its sender might notify then or later. The consumer, which polls once an
// hour, gets the message immediately. The same holds with the Notifier of the *sql.DB, if there is
// one.
func wakingAtAnyMoment(w *world) {
	const before, sits, looked, again, sleeps = "before it listens", "when it listens", "when it has looked", "when it has looked again", "when it sleeps"
	w.Within(5 * testdb.Bound)
	q := w.Queue("work", chanq.Config{})
	_, elsewhere := w.Connect()
	sender := testdb.Produce(w, testdb.OpenOn[string](w, elsewhere, "work", alone), chanq.ProducerConfig{})
	boards := []*board{{}, {late: true}}
	if here, is := w.DB.Driver().(chanq.Notifier); is {
		boards = append(boards, &board{here: here, there: elsewhere.Driver().(chanq.Notifier)})
	}
	for _, kind := range boards {
		moments := []string{before, sits, looked, again, sleeps}
		if kind.late {
			moments = []string{looked, before, sits, again, sleeps}
		}
		for i, committed := range moments {
			for _, rung := range moments[i:] {
				b := &board{late: kind.late, here: kind.here, there: kind.there}
				w.Logf("late %v, own %v: committed %s, notified %s", b.late, b.here != nil, committed, rung)
				w.wakes(b, func(moment string) {
					if moment == committed {
						testdb.SendBy(w, sender, chanq.Message[string]{Body: "a"})
					}
					if moment == rung {
						b.Notify(chanq.Notification{Queue: w.Engine.Dialect.Traits().Schema + ".work", Messages: 1})
					}
				})
				require.Zero(w, testdb.Counted(w, q))
			}
		}
	}
}

// wakes starts a consumer with a notifier, calls at at each moment until the consumer gets a
// message, and shuts it down.
func (w *world) wakes(b *board, at func(moment string)) {
	type look struct {
		moment string
		gate   chan struct{}
	}
	looks := make(chan look, 2)
	n := 0
	st := w.Statements("work")
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if _, listened, _ := b.count(); listened == 0 || n == 2 || !testdb.Runs(op, st.NextDue(sqlbatch.Heads{})) && !testdb.Runs(op, st.Rescan()) {
			return faultdb.Fault{}
		}
		l := look{[]string{"when it has looked", "when it has looked again"}[n], make(chan struct{})}
		n++
		looks <- l
		return faultdb.Hold(l.gate).Applied()
	})
	defer w.Faults.Inject(nil)
	b.before, b.after = func() { at("before it listens") }, func() { at("when it listens") }
	c, err := testdb.OpenOn[string](w, w.DB, "work", chanq.Config{Notifier: b}).Consume(w.Context(), seldom)
	require.NoError(w, err)
	defer c.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(testdb.Patience)
	slept, heard, early := false, !b.late, int64(0)
	for {
		select {
		case l := <-looks:
			at(l.moment)
			close(l.gate)
		case <-tick.C:
			all := c.Stats().Looks                          // before the question whether it listens
			if _, listened, _ := b.count(); listened == 0 { // the first pauses are too short to listen
				early = all
				break
			}
			switch looked := all - early; {
			case !heard && looked > 0:
				heard = true
				b.hearer()
			case heard && !slept && looked > 1:
				slept = true
				at("when it sleeps")
			}
		case l, open := <-c.C():
			require.True(w, open)
			require.NoError(w, l.Ack())
			require.NoError(w, c.Shutdown(w.Soon()))
			return
		case <-timeout:
			require.Fail(w, "the consumer is not woken")
		}
	}
}

func ringing(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	notifies := func(what string, want bool, do func()) {
		before, _, _ := b.count()
		do()
		rung := func() bool { // when the outcome is known
			after, _, _ := b.count()
			return after > before
		}
		if want {
			w.Eventually(what, rung)
			return
		}
		w.pass(20 * time.Millisecond)
		require.False(w, rung(), what)
	}
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	lease := func() *testdb.Held[string] { return testdb.Lease(w, q, 1, time.Minute)[0] }
	notifies("a send", true, func() { testdb.SendBy(w, p, testdb.Texts("a")...) })
	notifies("a release", true, func() { require.NoError(w, lease().Release()) })
	notifies("a nack", true, func() { require.NoError(w, lease().Nack(chanq.RetryAfter(0, nil))) })
	notifies("a claim and an ack", false, func() { require.NoError(w, lease().Ack()) })
	notifies("a transaction", false, func() {
		tx := w.begin(w.DB)
		w.sendTx(q, tx, testdb.Texts("b")...)
		require.NoError(w, tx.Commit())
	})
	notifies("its sender", true, q.Wake)
	l := lease()
	notifies("a message that dies", false, func() { require.NoError(w, l.Nack(chanq.DeadLetter(nil))) })
	notifies("a redrive", true, func() {
		w.redrive(q, 0)
	})
	scheduled := testdb.SendBy(w, p, chanq.Message[string]{Delay: time.Hour}, chanq.Message[string]{Delay: time.Hour})
	w.pass(20 * time.Millisecond)
	notifies("a scheduled message that runs now", true, func() {
		_, err := q.RunNow(w.Soon(), scheduled[0])
		require.NoError(w, err)
	})
	notifies("one that runs with a transaction", true, func() {
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.RunNowTx(ctx, tx, scheduled[1])
			return err
		}))
	})
	notifies("a pause", false, func() { require.NoError(w, testdb.Pause(w.Soon(), q)) })
	notifies("its end", true, func() { require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{})) })
}

// asleep waits until a consumer listens and is idle.
func (w *world) asleep(c *chanq.Consumer[string], b *board) {
	before := int64(-1)
	w.Eventually("it is idle", func() bool {
		_, _, listening := b.count()
		s := c.Stats()
		now := s.Looks + s.EmptyClaims
		still := listening > 0 && now > 0 && now == before
		before = now
		w.pass(20 * time.Millisecond)
		return still
	})
}

// pass lets time pass in which nothing should happen.
func (w *world) pass(d time.Duration) {
	select {
	case <-w.Context().Done():
	case <-time.After(d):
	}
}

// deaf is a Notifier whose channels are closed.
type deaf struct {
	board
	times []time.Time // times of calls of Listen
}

func (d *deaf) Listen(string, []int) (<-chan struct{}, func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listened++
	d.times = append(d.times, time.Now())
	ear := make(chan struct{})
	close(ear)
	return ear, func() {}
}

func deafNotifiers(w *world) {
	b := &deaf{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	w.Eventually("it has listened twice", func() bool { _, listened, _ := b.count(); return listened > 1 })
	s := c.Stats()
	require.Less(w, s.EmptyClaims+s.Looks, int64(40), "about as often as without a notifier")
	b.mu.Lock()
	require.GreaterOrEqual(w, b.times[1].Sub(b.times[0]), 900*time.Millisecond)
	b.mu.Unlock()
	_, elsewhere := w.Connect()
	testdb.Send(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{}), testdb.Texts("a")...)
	testdb.Take(w, c, 1)
}

// handingOn: the claim of a notified consumer fails, and the consumer is stopped before it repeats
// it. The message is left for another consumer.
func handingOn(w *world) {
	b := &board{}
	q := w.Queue("work", chanq.Config{Notifier: b})
	st := w.Statements("work")
	c := testdb.Start(w, q, seldom)
	w.asleep(c, b)
	var failed atomic.Int64
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if !claims(op, st) {
			return faultdb.Fault{}
		}
		failed.Add(1)
		return faultdb.Fail(w.Failure(sqlbatch.Refused))
	})
	b.Notify(chanq.Notification{Queue: "", Messages: 1})
	w.Eventually("its claim fails", func() bool { return failed.Load() > 0 })
	before, _, _ := b.count()
	require.NoError(w, c.Shutdown(w.Soon()))
	after, _, listening := b.count()
	require.Equal(w, before+1, after)
	require.Zero(w, listening)
}

// leavingToOthers: a consumer that listens without getting notifications sees a message in a poll.
// It polls once more before it claims, in case another consumer claims the message. In this test
// there is none.
func leavingToOthers(w *world) {
	b := &board{late: true}
	q := w.Queue("work", chanq.Config{Notifier: b})
	c := testdb.Start(w, q, chanq.ConsumerConfig{PollEvery: 200 * time.Millisecond})
	w.Eventually("the consumer polls", func() bool { return c.Stats().Looks > 2 })
	_, elsewhere := w.Connect()
	gate := make(chan struct{})
	st := w.Statements("work")
	seen := w.Strike(faultdb.Hold(gate).Applied(), func(op faultdb.Op) bool { return looks(op, st) })
	w.Eventually("the consumer polls", func() bool { return seen.Struck() != "" })
	before := c.Stats()
	close(gate)
	testdb.Send(w, testdb.OpenOn[string](w, elsewhere, "work", chanq.Config{}), testdb.Texts("a")...)
	testdb.Take(w, c, 1)
	after := c.Stats()
	require.GreaterOrEqual(w, after.Looks-before.Looks, int64(3), "the held poll, the poll that sees the message, and one more")
	require.Equal(w, before.EmptyClaims, after.EmptyClaims)
}
