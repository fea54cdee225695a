package suite

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// slots is how many slots the ordered queue of these tests has.
const slots = 4

// Ordered are the names of an ordered queue.
var Ordered = sqlbatch.Names{Queue: "orders", Slots: slots}

// HasOrdered reports whether the dialect supports ordered queues.
func HasOrdered(d sqlbatch.Dialect) bool { return d.Queue(Ordered).Slots().Text != "" }

const (
	end  = math.MaxInt64
	most = 1000
)

var (
	other       = [16]byte{0xB0, 15: 0x0B} // another consumer
	neverJoined = [16]byte{0xC0, 15: 0x0C} // a consumer that never joined
)

// line sends messages of a key to a slot with one statement.
func (w *world) line(slot int, key string, ns ...byte) {
	w.Helper()
	var rows []sqlbatch.Row
	for _, n := range ns {
		rows = append(rows, sqlbatch.Row{ID: ID(n), OrderKey: key, Slot: slot, Headers: []byte{n}, Body: []byte{n, n}})
	}
	w.send(rows...)
}

func nameOf(who [16]byte) string { return hex.EncodeToString(who[:1]) }

func (w *world) joinAs(who [16]byte, d time.Duration) {
	w.Helper()
	w.run(w.Join(sqlbatch.Consumer{ID: who, Name: nameOf(who), For: d}))
}

// fences returns slots and their fences, as a statement returned them.
func (w *world) fences(rows [][]any) map[int]int64 {
	w.Helper()
	all := map[int]int64{}
	for _, row := range rows {
		require.GreaterOrEqual(w, len(row), 2)
		all[int(row[0].(int64))] = row[1].(int64)
	}
	return all
}

func (w *world) take(who [16]byte, slots ...int) map[int]int64 {
	w.Helper()
	return w.fences(w.run(w.TakeSlots(who, 1, slots)))
}

// extend makes Consumer extend messages for a minute.
func (w *world) extend(ns ...byte) {
	w.Helper()
	require.Len(w, w.run(w.Extend(Consumer, w.items(ns...), time.Minute)), len(ns))
}

var ordered = []test{
	{"AnOrderedQueueIsToldFromAPlainOne", kindIsKnown},
	{"ALeaseEndsWithTheMembership", leasesEndWithMembership},
	{"SlotsAreTakenFromWhoIsGone", slotsAreTaken},
	{"ASurrenderEndsTheLeasesAsTheEndOfAMembership", surrendersOrdered},
	{"SlotsAreGivenByTheirFence", slotsAreGiven},
	{"SlotsAreListedWithTheirOwners", slotsAreListed},
	{"WhatIsSentWithKeysHasTheOrderOfItsRows", keyedRowsKeepTheirOrder},
	{"NumbersNeverGoBack", numbersGrow},
	{"AnyProgramMaySendToAnOrderedQueue", anyProgramSends},
	{"ADeadLetteringAsksForNoLease", deadLettersWithoutALease},
	{"WhatIsAtTheBoundsOfTheTablesIsTakenOverAndSettled", orderedBounds},
	{"TheDeadHoldTheirKeys", deadHold},
	{"AMessageKeepsItsPlaceThroughDeath", placesAreKept},
	{"OperatorsSeeAnOrderedQueueBySeq", peeksBySeq},
	{"AnOrderedQueueIsPurgedBySeq", purgesBySeq},
	{"OperatorsLookAtABoundedPartOfAnOrderedQueue", reaches},
	{"AnOrderedQueueIsCounted", orderedStats},
	{"SlotsAreCounted", slotStats},
	{"AnOrderedQueueIsDropped", orderedDrop},
}

func kindIsKnown(w *world) {
	known := func(holds int) [][]any {
		return [][]any{list(sqlbatch.Version, sqlbatch.Least, 0, 0, 2, slots, holds, 0, 20, 1<<20, 0, 0, 0, 0, "", nil, nil, nil)}
	}
	require.Equal(w, known(0), w.stored())
	w.holds(true)
	require.Equal(w, known(1), w.stored())
}

// holds sets whether dead messages hold their keys.
func (w *world) holds(yes bool) {
	p := sqlbatch.DefaultPolicy
	p.Holds = yes
	w.run(w.Record(sqlbatch.Version, p))
}

func keyedRowsKeepTheirOrder(w *world) {
	r := w.reader()
	w.line(0, "a", 3)
	rows := []sqlbatch.Row{
		{ID: ID(9), Key: "z", OrderKey: "a"}, {ID: ID(8), Key: "y", OrderKey: "a"}, {ID: ID(3), Key: "x", OrderKey: "a"}, {ID: ID(1), Key: "b", OrderKey: "a"}, {ID: ID(7), Key: "c", OrderKey: "a"},
	}
	require.ElementsMatch(w, []byte{9, 8, 1, 7}, Numbers(w.run(w.EnqueueNew(rows))))
	a := w.read(r)
	require.Equal(w, []byte{3, 9, 8, 1, 7}, a.ids)
	require.Equal(w, []any{"c", "a"}, a.rows[7].of("dedup_key", "order_key"))
}

func numbersGrow(w *world) {
	r := w.reader()
	last := int64(0)
	for round := range byte(3) {
		w.line(int(round), "a", 1, 2)
		w.send(sqlbatch.Row{ID: ID(3), OrderKey: "a", Slot: int(round)})
		a := w.read(r)
		require.Equal(w, []byte{1, 2, 3}, a.ids)
		for _, n := range a.ids {
			require.Greater(w, a.rows[n]["seq"], last)
			last = a.rows[n]["seq"].(int64)
		}
		items := w.items(1, 2, 3)
		require.Equal(w, items, Acked(w.run(w.Ack(items)), items...))
	}
}

func anyProgramSends(w *world) {
	r := w.reader()
	w.line(1, "a", 1)
	w.exec("INSERT INTO chanq_orders (body) VALUES (%s), (%s)", w.bytes([]byte("x")), w.bytes([]byte("y")))
	key := "'a'"
	if w.Engine.Dialect.Name() == "sqlserver" { // there keys are bytes
		key = w.bytes([]byte("a"))
	}
	w.exec("INSERT INTO chanq_orders (slot, order_key, body) VALUES (1, %s, %s)", key, w.bytes([]byte("z")))
	w.line(1, "a", 2)
	rows := w.shown(sqlbatch.Ready, 10, nil)
	var bodies []string
	for _, row := range rows {
		bodies = append(bodies, EntryOf(w, row)["body"].(string))
	}
	require.Equal(w, []string{"\x01\x01", "x", "y", "z", "\x02\x02"}, bodies, "each after what was there")
	for _, row := range rows[1:3] {
		e := EntryOf(w, row)
		require.GreaterOrEqual(w, e["slot"], int64(0))
		require.Less(w, e["slot"], int64(slots))
		require.Nil(w, e["order_key"])
	}
	require.Len(w, w.run(w.Read(r)), 5+1, "and the last row")
}
