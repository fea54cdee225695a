package suite

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

func firstFences(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2)
	w.run(w.EnqueueNew([]sqlbatch.Row{{ID: ID(2), Key: "b", OrderKey: "a"}, {ID: ID(3), Key: "a", OrderKey: "a"}, {ID: ID(4), OrderKey: "a"}}))
	tx, err := w.DB.Begin()
	require.NoError(w, err)
	for _, st := range []sqlbatch.Statement{w.Begun(), w.EnqueueBegun([]sqlbatch.Row{{ID: ID(5), OrderKey: "a"}})} {
		if st.Text != "" {
			_, err := testdb.Rows(context.Background(), tx, st)
			require.NoError(w, err)
		}
	}
	require.NoError(w, tx.Commit())
	a := w.read(r)
	require.Equal(w, []byte{1, 2, 3, 4, 5}, a.ids)
	for n, row := range a.rows {
		require.Equal(w, row["seq"], row["fence"], n)
	}
	stale := sqlbatch.Item{ID: ID(5), Fence: a.rows[5]["fence"].(int64)}
	require.Len(w, w.run(w.Ack([]sqlbatch.Item{stale})), 1)
	w.line(0, "a", 5)
	require.Empty(w, w.run(w.Ack([]sqlbatch.Item{stale})), "the same ID, sent again")
	require.Greater(w, w.read(r).rows[5]["fence"], stale.Fence)
}

func marksOrdered(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2, 3, 4)
	w.exec("UPDATE chanq_orders SET leased_by = %s, attempts = 1 WHERE NOT (%s)", w.uuid(other), w.is(1))
	w.exec("UPDATE chanq_orders SET lapses = 1, attempts = 2 WHERE %s", w.is(3))
	w.exec("UPDATE chanq_orders SET fence = %d WHERE %s", r.Slots[0].Fence+10, w.is(4))
	var items []sqlbatch.MarkItem
	for _, item := range w.items(1, 2, 3, 4) {
		items = append(items, sqlbatch.MarkItem{Item: item, SlotFence: r.Slots[0].Fence})
	}
	stale := items[0]
	stale.Fence--
	marked := func(items ...sqlbatch.MarkItem) map[byte][]any {
		w.Helper()
		all := map[byte][]any{}
		for _, row := range w.run(w.MarkOrdered(Consumer, items)) {
			all[row[0].(string)[0]] = row[1:]
		}
		return all
	}
	require.Empty(w, marked(stale))
	require.Equal(w, map[byte][]any{1: list(r.Slots[0].Fence, 0), 2: list(r.Slots[0].Fence, 1), 3: list(r.Slots[0].Fence, 2), 4: list(r.Slots[0].Fence+11, 1)}, marked(items...))
	require.Empty(w, marked(items...), "their fences are others now")
	a := w.read(r)
	for n, attempts := range map[byte]int64{1: 1, 2: 2, 3: 3, 4: 2} {
		require.Equal(w, []any{int64(1), attempts}, a.rows[n].of("holder", "attempts"), n)
	}
	require.Equal(w, map[byte][]any{3: list(r.Slots[0].Fence+1, 2)}, marked(sqlbatch.MarkItem{Item: w.items(3)[0], SlotFence: r.Slots[0].Fence}), "a mark of its own counts no expired lease")
}

func releasesOrdered(w *world) {
	r := w.reader()
	w.line(0, "a", 1, 2, 3, 4)
	w.exec("UPDATE chanq_orders SET leased_by = %s, attempts = 3, lapses = 1 WHERE %s", w.uuid(other), w.is(2))
	w.exec("UPDATE chanq_orders SET leased_by = %s, attempts = 3, lapses = 2 WHERE %s OR %s", w.uuid(Consumer), w.is(3), w.is(4))
	items := w.delivered(r, 1, 2, 3, 4)
	after := r.Slots[0].Fence + 1
	given := func(lapsed bool, items ...sqlbatch.ReleaseItem) map[byte][]any {
		w.Helper()
		all := map[byte][]any{}
		for _, row := range w.run(w.ReleaseOrdered(Consumer, items, lapsed)) {
			all[row[0].(string)[0]] = row[1:]
		}
		return all
	}
	require.Equal(w, map[byte][]any{1: list(after, 0), 2: list(after, 2), 3: list(after, 2)}, given(false, items[:3]...))
	require.Empty(w, given(false, items[:3]...))
	a := w.read(r)
	require.Equal(w, list(0, 1, 0), a.rows[1].of("holder", "attempts", "lapses"), "it was not delivered")
	require.Equal(w, list(2, 4, 2), a.rows[2].of("holder", "attempts", "lapses"), "the mark of another consumer stays")
	require.Equal(w, list(0, 3, 2), a.rows[3].of("holder", "attempts", "lapses"), "its own mark and its attempt are gone")

	items[0].Item = w.items(1)[0]
	require.Equal(w, map[byte][]any{1: list(after+1, 1), 4: list(after, 3)}, given(true, items[0], items[3]))
	a = w.read(r)
	require.Equal(w, list(0, 2, 1), a.rows[1].of("holder", "attempts", "lapses"), "an expired lease, and its attempt")
	require.Equal(w, list(0, 4, 3), a.rows[4].of("holder", "attempts", "lapses"))
}

func settlesOfReads(w *world) {
	r := w.reader()
	for _, held := range []bool{false, true} { // by an extension, which has counted the attempt
		w.exec("DELETE FROM chanq_orders")
		w.line(0, "a", 1, 2, 3, 4, 5, 6)
		items := w.delivered(r, 1, 2, 3, 4, 5, 6)
		if held {
			for _, i := range items {
				require.Len(w, w.run(w.Extend(Consumer, []sqlbatch.Item{i.Item}, time.Minute)), 1)
			}
		}
		one := func(rows [][]any, i sqlbatch.ReleaseItem) {
			w.Helper()
			require.Equal(w, []sqlbatch.Item{i.Item}, Acked(rows, i.Item), "the fence that matched")
		}
		one(w.run(w.Ack([]sqlbatch.Item{items[0].Item})), items[0])
		one(w.run(w.Archive([]sqlbatch.Item{items[1].Item})), items[1])
		one(w.run(w.Nack([]sqlbatch.NackItem{{Item: items[2].Item, Delivery: items[2].Delivery, Error: "e"}})), items[2])
		one(w.run(w.Snooze([]sqlbatch.NackItem{{Item: items[3].Item, Delivery: items[3].Delivery}})), items[3])
		one(w.run(w.Release([]sqlbatch.ReleaseItem{items[4]})), items[4])
		one(w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[5].Item, Delivery: items[5].Delivery}})), items[5])
		for n, attempts := range map[byte]int64{2: 1, 3: 1, 4: 0, 5: 0, 6: 1} {
			require.Equal(w, []any{attempts, nil}, w.get(n).of("attempts", "leased_by"), "%d, %v", n, held)
		}
		w.run(w.Discard(ids(6)))
		w.line(1, "b", 7)
		dead := w.delivered(r, 7)[0]
		require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: dead.Item, Delivery: dead.Delivery, Uncounted: true}})), 1)
		require.Equal(w, int64(0), w.get(7)["attempts"])
		w.run(w.Discard(ids(7)))
	}
}

func extendsOfReads(w *world) {
	r := w.reader()
	w.line(0, "a", 1)
	item := w.delivered(r, 1)[0]
	for range 2 {
		require.Equal(w, []sqlbatch.Item{item.Item}, Items(w.run(w.Extend(Consumer, []sqlbatch.Item{item.Item}, time.Minute)), 1))
		require.Equal(w, []any{"leased", item.Fence, int64(1), string(Consumer[:])}, w.get(1).of("state", "fence", "attempts", "leased_by"))
		require.InDelta(w, w.now()+time.Minute.Milliseconds(), w.get(1)["lease_until"], 30_000)
	}
	require.Len(w, w.run(w.Extend(Consumer, []sqlbatch.Item{item.Item}, 24*time.Hour)), 1)
	require.InDelta(w, w.now()+time.Hour.Milliseconds(), w.get(1)["lease_until"], 30_000, "not beyond the membership")
}

// The fence after a settle is greater than that of the delivery, the greater of the stored fence and the slot's.
func fencesOfDeliveries(w *world) {
	r := w.reader()
	slot := r.Slots[0].Fence
	for _, c := range []struct{ stored, after int64 }{{7, slot + 1}, {slot + 5, slot + 6}, {sqlbatch.HighFence + 1, slot + 1}} {
		for name, settle := range map[string]func(sqlbatch.ReleaseItem) sqlbatch.Statement{
			"nack": func(i sqlbatch.ReleaseItem) sqlbatch.Statement {
				return w.Nack([]sqlbatch.NackItem{{Item: i.Item, Delivery: i.Delivery}})
			},
			"snooze": func(i sqlbatch.ReleaseItem) sqlbatch.Statement {
				return w.Snooze([]sqlbatch.NackItem{{Item: i.Item, Delivery: i.Delivery}})
			},
			"release": func(i sqlbatch.ReleaseItem) sqlbatch.Statement { return w.Release([]sqlbatch.ReleaseItem{i}) },
			"dead-letter": func(i sqlbatch.ReleaseItem) sqlbatch.Statement {
				return w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: i.Item, Delivery: i.Delivery}})
			},
			"reader": func(i sqlbatch.ReleaseItem) sqlbatch.Statement {
				return w.ReleaseOrdered(Consumer, []sqlbatch.ReleaseItem{i}, true)
			},
		} {
			w.exec("DELETE FROM chanq_orders")
			w.line(0, "a", 1)
			w.exec("UPDATE chanq_orders SET fence = %d", c.stored)
			delivery := max(c.stored, slot)
			if c.stored > sqlbatch.HighFence {
				delivery = slot
			}
			require.Len(w, w.run(settle(sqlbatch.ReleaseItem{Item: sqlbatch.Item{ID: ID(1), Fence: c.stored}, Delivery: delivery})), 1, name)
			require.Equal(w, c.after, w.get(1)["fence"], "%s of %d", name, c.stored)
			w.run(w.Discard(ids(1)))
		}
	}
}

func olds(w *world) {
	old := func(slot int) (old int64) {
		w.Helper()
		require.NoError(w, w.DB.QueryRow("SELECT old FROM chanq__slots WHERE slot = "+string('0'+byte(slot))).Scan(&old))
		return old
	}
	r := w.reader()
	require.Zero(w, old(0), "it was not delivered")
	w.line(0, "a", 1, 2)
	w.line(1, "b", 3)
	drawn := w.read(r).drawn
	require.Len(w, w.run(w.GiveSlots(Consumer, []sqlbatch.OwnedSlot{r.Slots[2], {Slot: 3, Fence: r.Slots[3].Fence, Doubt: true}})), 2)
	require.Equal(w, []int64{0, drawn}, []int64{old(2), old(3)})
	for _, row := range w.run(w.TakeSlots(Consumer, 1, []int{2, 3})) {
		require.Equal(w, map[int64]int64{2: 0, 3: drawn}[row[0].(int64)], row[2], "an orderly return leaves nothing in doubt")
	}
	w.joinAs(other, time.Hour)
	w.run(w.Leave(Consumer))
	taken := w.run(w.TakeSlots(other, 1, []int{0, 1}))
	require.Len(w, taken, 2)
	for _, row := range taken {
		require.Equal(w, drawn, row[2])
	}
}
