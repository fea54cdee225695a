package guarantees

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Which consumers of an ordered queue a notification wakes.
var wakingSlots = []test{
	{"ANotificationWakesTheOwnerOfTheSlotAndNoOtherConsumer", wakingTheOwner},
	{"ANotificationOfAnOrderedQueueNamesTheSlots", namingSlots},
}

// exchange passes notifications between the consumers of a test.
type exchange struct {
	mu      sync.Mutex // guards the fields below
	waiters []*exchangeWaiter
	sent    []chanq.Notification
}

type exchangeWaiter struct {
	consumer int
	slots    []int
	heard    chan struct{}
}

// party is the Notifier of one consumer, or of senders.
type party struct {
	*exchange
	consumer int
}

func (x *exchange) Notify(n chanq.Notification) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = append(x.sent, n)
	for _, w := range x.waiters {
		if n.Slots == nil || slices.ContainsFunc(n.Slots, func(s int) bool { return slices.Contains(w.slots, s) }) {
			select {
			case w.heard <- struct{}{}:
			default:
			}
		}
	}
}

func (p party) Listen(_ string, slots []int) (<-chan struct{}, func()) {
	w := &exchangeWaiter{p.consumer, slots, make(chan struct{}, 1)}
	w.heard <- struct{}{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters = append(p.waiters, w)
	return w.heard, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiters = slices.DeleteFunc(p.waiters, func(o *exchangeWaiter) bool { return o == w })
	}
}

// listening returns the slots for which each consumer listens.
func (x *exchange) listening() map[int][]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[int][]int{}
	for _, w := range x.waiters {
		all[w.consumer] = w.slots
	}
	return all
}

// take returns the notifications since the last call.
func (x *exchange) take() []chanq.Notification {
	x.mu.Lock()
	defer x.mu.Unlock()
	sent := x.sent
	x.sent = nil
	return sent
}

// owners are consumers of an ordered queue of four slots that read only after a notification, each on its own *sql.DB.
type owners struct {
	*world
	x         *exchange
	sender    *chanq.Producer[string]
	consumers []*chanq.Consumer[string]
}

func (w *world) owners(n int) *owners {
	o := &owners{world: w, x: &exchange{}}
	q := w.keys(o.config(-1))
	o.sender = testdb.Produce(w, q, chanq.ProducerConfig{})
	for range n {
		o.join()
	}
	return o
}

func (o *owners) config(consumer int) chanq.Config {
	return chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 4}, Notifier: party{o.x, consumer}}
}

// join starts one more consumer.
func (o *owners) join() *chanq.Consumer[string] {
	_, db := o.Connect()
	c := testdb.Start(o, testdb.OpenOn[string](o, db, "work", o.config(len(o.consumers))), seldom)
	o.consumers = append(o.consumers, c)
	return c
}

// asleep waits until n consumers listen, own all slots, none of them more than its share, and do not read any more.
func (o *owners) asleep(n int) {
	o.Helper()
	reads := int64(-1)
	o.Eventually("they sleep", func() bool {
		var owned []int
		listening := o.x.listening()
		settled := len(listening) == n
		for _, slots := range listening {
			owned = append(owned, slots...)
			settled = settled && len(slots) <= (4+n-1)/n
		}
		slices.Sort(owned)
		before := reads
		reads = 0
		for _, c := range o.consumers {
			s := c.Stats()
			reads += s.Claims + s.EmptyClaims
		}
		if reads == before && settled && slices.Equal(owned, []int{0, 1, 2, 3}) {
			return true // they sleep at this moment
		}
		o.pass(100 * time.Millisecond)
		return false
	})
}

// keyIn returns a key of a slot.
func keyIn(slot int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key", i); sqlbatch.SlotOf(key, chanq.ID{}, 4) == slot {
			return key
		}
	}
}

func wakingTheOwner(w *world) {
	o := w.owners(4)
	o.asleep(4)
	for slot := range 4 {
		before := make([]chanq.ConsumerStats, 4)
		owner := -1
		for i, slots := range o.x.listening() {
			before[i] = o.consumers[i].Stats()
			if slices.Equal(slots, []int{slot}) {
				owner = i
			}
		}
		require.GreaterOrEqual(w, owner, 0)
		o.x.take()
		testdb.SendBy(w, o.sender, chanq.Message[string]{Key: keyIn(slot), Body: "a"})
		require.NoError(w, testdb.Take(w, o.consumers[owner], 1)[0].Ack())
		require.Equal(w, []chanq.Notification{{Queue: o.Engine.Dialect.Traits().Schema + ".work", Messages: 1, Slots: []int{slot}}}, o.x.take())
		o.asleep(4)
		for i, c := range o.consumers {
			after := c.Stats()
			if i == owner {
				require.Equal(w, before[i].Claims+1, after.Claims)
				continue
			}
			require.Equal(w, before[i].EmptyClaims, after.EmptyClaims, "consumer %d is not woken", i)
		}
	}
}

func namingSlots(w *world) {
	o := w.owners(1)
	o.asleep(1)
	q := testdb.OpenOn[string](w, w.DB, "work", o.config(-1))
	notifies := func(what string, want []int, do func()) {
		w.Helper()
		o.x.take()
		do()
		var all []chanq.Notification
		w.Eventually(what, func() bool { all = append(all, o.x.take()...); return len(all) > 0 })
		require.Equal(w, want, all[0].Slots, what)
		if want == nil {
			require.Zero(w, all[0].Messages, what)
		}
	}
	c := o.consumers[0]
	var l *chanq.Lease[string]
	notifies("a send", []int{2}, func() { testdb.SendBy(w, o.sender, chanq.Message[string]{Key: keyIn(2), Body: "a"}) })
	l = testdb.Take(w, c, 1)[0]
	notifies("a nack", []int{2}, func() { require.NoError(w, l.Nack(chanq.RetryAfter(0, nil))) })
	require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
	notifies("a send of two", []int{1, 3}, func() {
		testdb.SendBy(w, o.sender, chanq.Message[string]{Key: keyIn(3), Body: "a"}, chanq.Message[string]{Key: keyIn(1), Body: "b"})
	})
	for _, l := range testdb.Take(w, c, 2) {
		require.NoError(w, l.Ack())
	}
	notifies("a call of Wake", nil, q.Wake)
	testdb.SendBy(w, o.sender, chanq.Message[string]{Key: keyIn(2), Body: "a"})
	l = testdb.Take(w, c, 1)[0]
	require.NoError(w, l.Nack(chanq.DeadLetter(nil)))
	require.NoError(w, l.Wait(w.Soon()))
	notifies("a redrive", nil, func() {
		w.redriveIDs(q, l.ID)
	})
	require.NoError(w, testdb.Take(w, c, 1)[0].Ack())
	notifies("the end of a pause", nil, func() { require.NoError(w, testdb.Admin(q).Resume(w.Soon(), chanqadmin.Change{})) })
	notifies("slots that are returned", nil, func() { o.join() })
	o.asleep(2)
	notifies("a consumer that leaves", nil, func() { require.NoError(w, o.consumers[1].Shutdown(w.Soon())) })
}
