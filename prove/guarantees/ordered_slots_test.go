package guarantees

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// How soon the slots of an ordered queue are balanced.
var orderedSlots = []test{
	{"ANewConsumerHasItsShareOfTheSlotsInThreeSeconds", slotsOfOneThatJoins},
	{"ABusyConsumerAlsoReturnsSlots", slotsOfOneThatIsBusy},
	{"TheSlotsOfAConsumerThatStopsAreTakenImmediately", slotsOfOneThatLeaves},
	{"TheSlotsOfAConsumerThatIsDisconnectedAreTakenWhenItsLeaseExpires", slotsOfOneThatIsCutOff},
}

const manySlots = 16

// Bounds for the time from the last change until the slots are balanced.
var (
	balanceWithin = slowness * 3 * time.Second
	leaveWithin   = slowness * 500 * time.Millisecond
	cutOffWithin  = slowness*2*time.Second + slotLease
	slotLease     = steadyLease
)

// slotsBalanced waits until the slots are balanced among the consumers. In a bubble, where a slow machine
// does not matter, it requires that this takes at most within.
func (w *world) slotsBalanced(within time.Duration, consumers ...*chanq.Consumer[string]) {
	w.Helper()
	began := time.Now()
	w.Eventually("the slots are balanced", func() bool {
		total := 0
		for _, c := range consumers {
			n := c.Stats().Slots
			if n > (manySlots+len(consumers)-1)/len(consumers) {
				return false
			}
			total += n
		}
		return total == manySlots
	})
	w.Logf("balanced after %v", time.Since(began))
	w.soon(began, within+1)
}

// manySlotted returns a queue and two functions that start consumers of it: apart with a *sql.DB of
// their own, here with the test's.
func (w *world) manySlotted(lease time.Duration) (q *chanq.Queue[string], apart func() (*faultdb.Connector, *chanq.Consumer[string]), here func() *chanq.Consumer[string]) {
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: manySlots}, History: chanq.HistoryOff} // the history has statements of its own
	q = w.keys(cfg)
	consume := chanq.ConsumerConfig{LeaseFor: lease, Prefetch: 32}
	return q, func() (*faultdb.Connector, *chanq.Consumer[string]) {
			faults, db := w.Connect()
			return faults, testdb.Start(w, testdb.OpenOn[string](w, db, "work", cfg), consume)
		}, func() *chanq.Consumer[string] {
			return testdb.Start(w, q, consume)
		}
}

func slotsOfOneThatJoins(w *world) {
	_, start, _ := w.manySlotted(slotLease)
	var all []*chanq.Consumer[string]
	for range 4 {
		_, c := start()
		all = append(all, c)
		w.slotsBalanced(balanceWithin, all...)
	}
}

// slotsOfOneThatIsBusy does not read from the channel: no claim follows the first.
func slotsOfOneThatIsBusy(w *world) {
	q, start, _ := w.manySlotted(slotLease)
	for i := range 300 {
		testdb.Send(w, q, chanq.Message[string]{Body: "x", Key: string(rune('A' + i%60))})
	}
	_, a := start()
	w.Eventually("the consumer waits for readers", func() bool { return a.Stats().Buffered > 0 })
	_, b := start()
	w.slotsBalanced(balanceWithin, a, b)
}

func slotsOfOneThatLeaves(w *world) {
	_, _, start := w.manySlotted(slotLease)
	a, b := start(), start()
	w.slotsBalanced(balanceWithin+slotLease, a, b)
	require.NoError(w, a.Shutdown(w.Soon()))
	w.slotsBalanced(leaveWithin, b)
}

func slotsOfOneThatIsCutOff(w *world) {
	_, start, _ := w.manySlotted(slotLease)
	faults, a := start()
	_, b := start()
	w.slotsBalanced(balanceWithin, a, b)
	broken := w.Broken(false)
	faults.Inject(func(faultdb.Op) faultdb.Fault { return broken })
	faults.CutAll(w.Failure(sqlbatch.Unknown))
	w.slotsBalanced(cutOffWithin, b)
	w.Eventually("the consumer knows that it has no slots", func() bool { return a.Stats().Slots == 0 })
	faults.Inject(nil)
	w.slotsBalanced(balanceWithin+slowness*20*time.Second, a, b) // a consumer that needs seconds for the released slots waits half a minute longer
}
