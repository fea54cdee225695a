package suite

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// Owners of slots read, mark and settle.

var reading = []test{
	{"AReadReturnsMessagesInTheOrderOfNumbers", readsInOrder},
	{"AReadHasAllThatADeliveryNeeds", readColumns},
	{"AReadIsCutAtItsRows", cutReads},
	{"RowsUpToTheCursorAndUpToOldHaveNoContents", readsWithoutContents},
	{"AReadOfSlotsThatAreNotOwnedIsNoAnswer", readsAreWalked},
	{"AReadReportsWhatHoldsAMessage", readStates},
	{"AReadReportsHeldKeysAndRedrives", readsHeld},
	{"ARefillReturnsTheMessagesOfItsKeys", refills},
	{"AFetchReturnsMessagesByTheirIDs", fetches},
	{"AReadDuringASendMissesNothing", readsDuringSends},
	{"TheFirstFenceIsTheNumber", firstFences},
	{"AMarkTakesAMessageOver", marksOrdered},
	{"AReleaseOfAReaderKeepsTheMarksOfOthers", releasesOrdered},
	{"SettlesOfReadMessagesCountTheirAttempt", settlesOfReads},
	{"AnExtensionNotesTheHolderOnce", extendsOfReads},
	{"SettlesOfADeliveryRaiseTheFenceAboveIt", fencesOfDeliveries},
	{"ATakeAndADoubtSetOldToTheLastNumber", olds},
}

// answer is what a read returned.
type answer struct {
	ids      []byte
	rows     map[byte]readRow
	walked   bool
	drawn    int64
	redriven int64
	upto     int64
	senders  string
}

// readRow has the columns of a row by name.
type readRow map[string]any

var readNames = []string{
	"id", "priority", "fence", "attempts", "lapses", "expired", "enqueued_at", "due_at", "expires_at", "dedup_key", "type", "headers", "body", "size",
	"slot", "seq", "order_key", "wait", "lives", "holder", "held", "given", "locked",
}

func (r readRow) of(columns ...string) (values []any) {
	for _, c := range columns {
		values = append(values, r[c])
	}
	return values
}

// answerOf parses the rows of a read.
func answerOf(t require.TestingT, rows [][]any) *answer {
	a := &answer{rows: map[byte]readRow{}}
	for n, row := range rows {
		require.Len(t, row, len(readNames))
		if row[0] == nil {
			require.Equal(t, len(rows)-1, n, "the last row")
			a.walked, a.drawn, a.redriven, a.upto = row[1] == int64(1), row[2].(int64), row[6].(int64), row[7].(int64)
			a.senders, _ = row[12].(string)
			continue
		}
		r := readRow{}
		for i, name := range readNames {
			r[name] = row[i]
		}
		id := row[0].(string)[0]
		require.NotContains(t, a.rows, id, "twice")
		a.ids, a.rows[id] = append(a.ids, id), r
	}
	slices.SortFunc(a.ids, func(x, y byte) int { return cmp.Compare(a.rows[x]["seq"].(int64), a.rows[y]["seq"].(int64)) })
	return a
}

// readOf returns the parameters to read all messages of the slots.
func (w *world) readOf(fences map[int]int64) sqlbatch.ReadParams {
	r := sqlbatch.ReadParams{Consumer: Consumer, Upto: end, Rows: most, Behind: most, Inline: sqlbatch.MaxBody}
	for slot := range slots {
		if fence, ok := fences[slot]; ok {
			r.Slots = append(r.Slots, sqlbatch.OwnedSlot{Slot: slot, Fence: fence})
		}
	}
	return r
}

// reader joins, and takes all slots.
func (w *world) reader() sqlbatch.ReadParams {
	w.Helper()
	w.joinAs(Consumer, time.Hour)
	return w.readOf(w.take(Consumer, 0, 1, 2, 3))
}

func (w *world) read(r sqlbatch.ReadParams) *answer {
	w.Helper()
	a := answerOf(w, w.run(w.Read(r)))
	require.True(w, a.walked)
	return a
}

func (w *world) fetch(r sqlbatch.ReadParams, ns ...byte) *answer {
	w.Helper()
	return answerOf(w, w.run(w.Fetch(r.Consumer, r.Slots, ids(ns...))))
}

// deliveryOf returns the fence of a delivery.
func deliveryOf(r sqlbatch.ReadParams, row readRow) int64 {
	fence := row["fence"].(int64)
	for _, own := range r.Slots {
		if int64(own.Slot) == row["slot"] {
			fence = max(fence, own.Fence)
		}
	}
	return fence
}

// delivered returns messages as they were read, with their deliveries.
func (w *world) delivered(r sqlbatch.ReadParams, ns ...byte) (items []sqlbatch.ReleaseItem) {
	w.Helper()
	a := w.read(r)
	for _, n := range ns {
		require.Contains(w, a.rows, n)
		items = append(items, sqlbatch.ReleaseItem{Item: sqlbatch.Item{ID: ID(n), Fence: a.rows[n]["fence"].(int64)}, Delivery: deliveryOf(r, a.rows[n])})
	}
	return items
}

func readsInOrder(w *world) {
	r := w.reader()
	w.line(1, "a", 9, 2)
	w.line(2, "b", 8)
	w.line(1, "c", 1, 7)
	w.line(0, "a", 3)
	a := w.read(r)
	require.Equal(w, []byte{9, 2, 8, 1, 7, 3}, a.ids)
	require.Empty(w, a.senders)
	require.GreaterOrEqual(w, a.drawn, a.rows[3]["seq"])
	r.From = a.rows[8]["seq"].(int64)
	require.Equal(w, []byte{1, 7, 3}, w.read(r).ids)
	r.From, r.Upto = 0, a.rows[8]["seq"].(int64)
	require.Equal(w, []byte{9, 2, 8}, w.read(r).ids)
	r.Upto, r.Slots = end, r.Slots[2:]
	require.Equal(w, []byte{8}, w.read(r).ids, "of its slots")
	r.Slots = r.Slots[:1]
	require.Equal(w, []byte{8}, w.read(r).ids, "of one slot")
	r.From = a.rows[8]["seq"].(int64)
	require.Empty(w, w.read(r).ids)
	require.Equal(w, "ready", w.get(8)["state"], "a read writes nothing")
}

func readColumns(w *world) {
	r := w.reader()
	w.send(sqlbatch.Row{ID: ID(1), Key: "k1", Type: "t", OrderKey: "né", Slot: 3, TTL: time.Hour, Headers: []byte("h"), Body: []byte("body")}, sqlbatch.Row{ID: ID(2)})
	w.send(sqlbatch.Row{ID: ID(3), OrderKey: "x", TTL: time.Millisecond})
	w.run(w.Clock())
	a := w.read(r)
	one, two, three := a.rows[1], a.rows[2], a.rows[3]
	live := w.get(1)
	require.Equal(w, []any{int64(0), live["fence"], int64(1), int64(0), int64(0), live["enqueued_at"], live["due_at"], live["expires_at"]}, one.of("priority", "fence", "attempts", "lapses", "expired", "enqueued_at", "due_at", "expires_at"))
	require.Equal(w, []any{"k1", "t", "h", "body", int64(4)}, one.of("dedup_key", "type", "headers", "body", "size"))
	require.Equal(w, []any{int64(3), live["seq"], "né", int64(0)}, one.of("slot", "seq", "order_key", "wait"))
	require.InDelta(w, time.Hour.Milliseconds(), one["lives"], 30_000)
	require.Equal(w, list(0, 0, 1, 0), one.of("holder", "held", "given", "locked"))
	require.Equal(w, []any{nil, nil, nil, nil, "", int64(0), int64(1)}, two.of("dedup_key", "type", "headers", "order_key", "body", "lives", "given"))
	require.Equal(w, list(1, 1), three.of("expired", "lives"), "its TTL has ended")
}

func cutReads(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2, 3)
	w.line(1, "b", 4, 5, 6)
	all := w.read(r)
	r.Rows = 2
	a := w.read(r)
	require.Equal(w, []byte{1, 2}, a.ids)
	r.From, r.Cursor = a.rows[1]["seq"].(int64), a.rows[2]["seq"].(int64)
	require.Equal(w, []byte{2, 3, 4}, w.read(r).ids, "one up to the cursor, and two above")
	r.From, r.Cursor, r.Behind = 0, all.rows[5]["seq"].(int64), 3
	require.Equal(w, []byte{1, 2, 3, 6}, w.read(r).ids)
	r.Rows = 0
	require.Equal(w, []byte{1, 2, 3}, w.read(r).ids)
	r.Upto = all.rows[2]["seq"].(int64)
	require.Equal(w, []byte{1, 2}, w.read(r).ids, "up to where it is asked for")
	r.Upto, r.Cursor, r.Behind = end, 0, 0
	require.Empty(w, w.read(r).ids)
}

func readsWithoutContents(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2)
	w.line(0, "b", 3)
	w.line(0, "", 4)
	w.send(sqlbatch.Row{ID: ID(5), Body: []byte("larger")})
	given := func(rows int) (ns []byte) {
		w.Helper()
		a := w.read(r)
		require.Len(w, a.ids, rows)
		for _, n := range a.ids {
			if a.rows[n]["given"] == int64(1) {
				require.NotNil(w, a.rows[n]["body"], n)
				ns = append(ns, n)
			} else {
				require.Equal(w, []any{nil, nil, nil, nil}, a.rows[n].of("dedup_key", "type", "headers", "body"), n)
				require.NotZero(w, a.rows[n]["size"], n)
			}
		}
		return ns
	}
	require.Equal(w, []byte{1, 2, 3, 4, 5}, given(5))
	r.Keys = []string{"c", "a"}
	require.Equal(w, []byte{3, 4, 5}, given(3), "spilled keys are left out")
	r.Cursor = w.get(1)["seq"].(int64)
	require.Equal(w, []byte{3, 4, 5}, given(4), "but not up to the cursor")
	r.Cursor = 0
	r.Keys, r.Old = nil, w.get(2)["seq"].(int64)
	require.Equal(w, []byte{3, 4, 5}, given(5), "up to old")
	r.Old, r.Cursor = 0, w.get(3)["seq"].(int64)
	require.Equal(w, []byte{4, 5}, given(5), "up to the cursor")
	r.Cursor, r.Inline = 0, 2
	require.Equal(w, []byte{1, 2, 3, 4}, given(5), "what is larger")
}

func readsAreWalked(w *world) {
	r := w.reader()
	w.line(0, "a", 1)
	nothing := func(why string, r sqlbatch.ReadParams) {
		w.Helper()
		refill := sqlbatch.ReadParams{Consumer: r.Consumer, Slots: r.Slots, Upto: end, Rows: most, Keys: []string{"a"}, Inline: most}
		for name, st := range map[string]sqlbatch.Statement{
			"read": w.Read(r), "refill": w.Refill(refill), "fetch": w.Fetch(r.Consumer, r.Slots, ids(1)), "look": w.LookOrdered(r.Consumer, r.Slots, ids(1)),
		} {
			a := answerOf(w, w.run(st))
			require.False(w, a.walked, "%s: %s", name, why)
			require.Empty(w, a.ids, "%s: %s", name, why)
		}
	}
	stranger := r
	stranger.Consumer = other
	w.joinAs(other, time.Hour)
	nothing("another consumer's slots", stranger)
	late := r
	late.Slots = slices.Clone(r.Slots)
	late.Slots[3].Fence--
	nothing("one slot has another fence", late)
	late.Slots = late.Slots[3:]
	nothing("another fence", late)
	w.run(w.Pause("someone", "a test"))
	nothing("the queue is paused", r)
	w.run(w.Resume())
	w.shift("chanq__consumers.until", -2*time.Hour, "name = '"+nameOf(Consumer)+"'")
	nothing("the membership has ended", r)
	w.joinAs(Consumer, time.Hour)
	require.Equal(w, []byte{1}, w.read(r).ids)
	require.Len(w, w.run(w.GiveSlots(Consumer, r.Slots[3:])), 1)
	nothing("one slot was returned", r)
	r.Slots = r.Slots[:3]
	require.Equal(w, []byte{1}, w.read(r).ids)
	w.run(w.Leave(Consumer))
	nothing("the consumer has left", r)
	require.Equal(w, []any{"ready", int64(0)}, w.get(1).of("state", "attempts"))
}

func readStates(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2, 3, 4)
	items := w.delivered(r, 1, 2)
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: items[0].Item, Delivery: items[0].Delivery, Delay: time.Hour}})), 1)
	require.Len(w, w.run(w.Extend(Consumer, []sqlbatch.Item{items[1].Item}, time.Minute)), 1)
	w.exec("UPDATE chanq_orders SET leased_by = %s, attempts = 1, lease_until = %s WHERE %s", w.uuid(other), w.at(w.now()/1000+3600), w.is(3))
	a := w.read(r)
	require.InDelta(w, time.Hour.Milliseconds(), a.rows[1]["wait"], 30_000, "it is not due")
	require.Equal(w, list(0, 2), a.rows[1].of("holder", "attempts"))
	require.Equal(w, list(1, 0, 1), a.rows[2].of("holder", "wait", "attempts"), "its own lease")
	require.InDelta(w, time.Hour.Milliseconds(), a.rows[3]["wait"], 30_000, "another consumer's lease")
	require.Equal(w, list(2, 2, 1), a.rows[3].of("holder", "attempts", "lapses"), "with that of the holder")
	require.Equal(w, list(0, 1, 0, 0), a.rows[4].of("holder", "attempts", "lapses", "wait"))
}

func hexOf(id [16]byte) string { return hex.EncodeToString(id[:]) }

// uuid returns an id as a value.
func (w *world) uuid(id [16]byte) string {
	if w.Engine.Dialect.Name() == "postgres" {
		return "'" + hexOf(id) + "'"
	}
	return w.bytes(id[:])
}

func readsHeld(w *world) {
	w.holds(true)
	r := w.reader()
	w.line(0, "a", 1, 2)
	w.line(1, "a", 3)
	w.line(0, "", 4, 5)
	items := w.delivered(r, 1, 4)
	require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[0].Item, Delivery: items[0].Delivery}, {Item: items[1].Item, Delivery: items[1].Delivery}})), 2)
	heldIn := func(st sqlbatch.Statement) (ns []byte) {
		w.Helper()
		a := answerOf(w, w.run(st))
		require.True(w, a.walked)
		for _, n := range a.ids {
			if a.rows[n]["held"] == int64(1) {
				ns = append(ns, n)
			}
		}
		return ns
	}
	require.Equal(w, []byte{2}, heldIn(w.Read(r)))
	require.Equal(w, []byte{2}, heldIn(w.LookOrdered(Consumer, r.Slots, ids(2, 3, 5))))
	w.holds(false)
	require.Empty(w, heldIn(w.Read(r)), "where dead messages hold nothing")
	w.holds(true)
	asked := func() [][]any {
		w.Helper()
		rows := w.run(w.HeldKeys([]int{1, 0, 0}, []string{"a", "a", "b"}))
		slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(a[0].(int64), b[0].(int64)) })
		return rows
	}
	require.Equal(w, [][]any{list(1, 0, 0), list(2, 1, 0), list(3, 0, 0)}, asked())
	require.Zero(w, w.read(r).redriven)
	require.Empty(w, w.run(w.Redrive(0, ids(9), sqlbatch.Window{})))
	require.Zero(w, w.read(r).redriven, "nothing was redriven")
	require.Len(w, w.run(w.Redrive(0, ids(1), sqlbatch.Window{})), 1)
	a := w.read(r)
	require.Positive(w, a.redriven)
	require.Equal(w, [][]any{list(1, 0, int(a.redriven)), list(2, 0, int(a.redriven)), list(3, 0, int(a.redriven))}, asked())
	require.Equal(w, []byte{1, 2, 3, 5}, a.ids, "it has its place again")
	require.Equal(w, items[0].Delivery+2, a.rows[1]["fence"])
	require.Empty(w, heldIn(w.Read(r)))
	require.Len(w, w.run(w.Redrive(10, nil, sqlbatch.Window{})), 1)
	again := w.read(r).redriven
	require.Positive(w, again)
	require.NotEqual(w, a.redriven, again)
}

func refills(w *world) {
	r := w.reader()
	for n := range byte(9) {
		w.line(int(n)%2, string('a'+n%3), n+1)
	}
	w.line(0, "", 10)
	all := w.read(r)
	refill := sqlbatch.ReadParams{Consumer: Consumer, Slots: r.Slots, Upto: end, Rows: most, Keys: []string{"c", "a"}, Inline: most}
	run := func() *answer {
		w.Helper()
		a := answerOf(w, w.run(w.Refill(refill)))
		require.True(w, a.walked)
		return a
	}
	a := run()
	require.Equal(w, []byte{1, 3, 4, 6, 7, 9}, a.ids)
	require.EqualValues(w, int64(end), a.upto, "it was walked to its end")
	require.Equal(w, []any{int64(1), "\x03\x03"}, a.rows[3].of("given", "body"))
	refill.Rows = 3
	a = run()
	require.Equal(w, []byte{1, 3, 4}, a.ids)
	require.Equal(w, all.rows[4]["seq"], a.upto, "it was cut")
	refill.From, refill.Old = a.upto, all.rows[6]["seq"].(int64)
	a = run()
	require.Equal(w, []byte{6, 7, 9}, a.ids)
	require.Equal(w, list(0, 1), []any{a.rows[6]["given"], a.rows[7]["given"]})
	refill.Rows, refill.Upto = most, all.rows[7]["seq"].(int64)
	require.Equal(w, []byte{6, 7}, run().ids)
	refill.Slots = r.Slots[1:2]
	require.Equal(w, []byte{6}, run().ids, "of one slot")
	refill.Slots = r.Slots[2:]
	require.Empty(w, run().ids)
}

func fetches(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2)
	w.line(3, "b", 3)
	a := w.fetch(r, 3, 1, 9)
	require.True(w, a.walked)
	require.Equal(w, []byte{1, 3}, a.ids)
	require.Equal(w, []any{"\x01\x01", int64(1), int64(0), "a"}, a.rows[1].of("body", "given", "wait", "order_key"))
	own := r
	own.Slots = r.Slots[:1]
	require.Equal(w, []byte{1}, w.fetch(own, 1, 3).ids, "of its slots")
	look := answerOf(w, w.run(w.LookOrdered(Consumer, r.Slots, ids(1, 2, 3))))
	require.Equal(w, []byte{1, 2, 3}, look.ids)
	require.Equal(w, []any{nil, nil, int64(2), int64(0)}, look.rows[2].of("body", "headers", "size", "given"))
	require.Equal(w, w.get(2)["fence"], look.rows[2]["fence"])
	require.Empty(w, w.fetch(r).ids)
}

// A read returns no message that an open transaction has sent, or returns it as locked. A read after the commit returns it. A row of a
// greater number that an earlier read returned does not move the watermark beyond it.
func readsDuringSends(w *world) {
	r := w.reader()
	w.line(0, "a", 1)
	before := w.read(r)
	tx, err := w.DB.Begin()
	require.NoError(w, err)
	defer tx.Rollback()
	_, err = Rows(context.Background(), tx, w.InTx().Enqueue([]sqlbatch.Row{{ID: ID(2), OrderKey: "b", Slot: 1}}))
	require.NoError(w, err)
	if name := w.Engine.Dialect.Name(); name != "sqlite" { // SQLite has only one connection here
		w.line(0, "a", 3)
		w.line(1, "b", 4)
		one := r
		one.Slots = r.Slots[1:2]
		a, alone := w.read(r), w.read(one)
		if name == "postgres" {
			require.Equal(w, []byte{1, 3, 4}, a.ids)
			require.Equal(w, []byte{4}, alone.ids)
			require.NotEmpty(w, a.senders)
			require.NotContains(w, a.senders, " ", "one sender")
		} else {
			require.Equal(w, []byte{1, 2, 3, 4}, a.ids)
			require.Equal(w, []byte{2, 4}, alone.ids)
			require.Equal(w, []any{nil, int64(1), "b", int64(0), int64(1)}, a.rows[2].of("body", "slot", "order_key", "given", "locked"))
			require.Equal(w, list(1, 0), a.rows[4].of("given", "locked"))
			require.Empty(w, a.senders)
		}
		require.Greater(w, a.drawn, before.drawn)
		require.EqualValues(w, int64(end), a.upto)
		r.From = before.drawn
	}
	require.NoError(w, tx.Commit())
	a := w.read(r)
	require.Contains(w, a.ids, byte(2))
	require.Equal(w, list(1, 0), a.rows[2].of("given", "locked"))
	require.Empty(w, a.senders)
}
