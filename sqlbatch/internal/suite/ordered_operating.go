package suite

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Dead messages of an ordered queue, and the operators' statements for them.

// Dead-lettering checks only the fence: a new owner raises it before it delivers the next message of the key.
func deadLettersWithoutALease(w *world) {
	w.joinAs(Consumer, time.Hour)
	w.line(0, "a", 1, 2)
	w.extend(1, 2)
	items := w.items(1, 2)
	w.lapse(1)
	deadLetters := []sqlbatch.DeadLetterItem{{Item: items[0]}, {Item: items[1], Error: "e"}}
	require.ElementsMatch(w, items, Items(w.run(w.DeadLetter(deadLetters)), 1))
	require.Equal(w, []any{"dead", "dead"}, []any{w.get(2)["state"], w.get(1)["state"]})
	require.Empty(w, w.run(w.SkipLocked().DeadLetter(deadLetters)))
}

// deadLetterAll dead-letters messages.
func (w *world) deadLetterAll(ns ...byte) {
	w.Helper()
	var deadLetters []sqlbatch.DeadLetterItem
	for _, item := range w.items(ns...) {
		deadLetters = append(deadLetters, sqlbatch.DeadLetterItem{Item: item})
	}
	require.Len(w, w.run(w.DeadLetter(deadLetters)), len(ns))
}

func deadHold(w *world) {
	held := func() (all []string) {
		w.Helper()
		slots, keys := []int{0, 0, 0, 0, 1, 1, 2}, []string{"a", "b", "né", "c", "a", "b", "a"}
		for _, row := range w.run(w.HeldKeys(slots, keys)) {
			if place := row[0].(int64) - 1; row[1] == int64(1) {
				all = append(all, string('0'+byte(slots[place]))+keys[place])
			}
		}
		slices.Sort(all)
		return all
	}
	w.line(0, "a", 1, 2)
	w.line(0, "b", 3)
	w.line(0, "né", 4)
	w.line(1, "a", 5)
	w.line(2, "", 6)
	require.Empty(w, held())
	w.deadLetterAll(1, 2, 3, 4, 5, 6)
	require.Empty(w, held(), "by the policy they hold nothing")
	w.holds(true)
	require.Equal(w, []string{"0a", "0b", "0né", "1a"}, held())
	w.run(w.Redrive(0, ids(1), sqlbatch.Window{}))
	require.Contains(w, held(), "0a", "another message of the key is dead")
	w.run(w.Discard(ids(2)))
	require.Equal(w, []string{"0b", "0né", "1a"}, held())
}

func placesAreKept(w *world) {
	r := w.reader()
	w.line(2, "a", 1, 2, 3)
	sent := w.read(r)
	place := func(n byte) []any { w.Helper(); return w.get(n).of("slot", "seq", "order_key") }
	want := func(n byte) []any { return sent.rows[n].of("slot", "seq", "order_key") }
	require.Equal(w, want(1), place(1))
	w.deadLetterAll(1, 2)
	require.Equal(w, want(1), place(1))
	require.Equal(w, want(2), EntryOf(w, w.shown(sqlbatch.Dead, 1, nil)[0]).of("slot", "seq", "order_key"))
	require.Equal(w, "a", w.run(w.Walk(nil, 1, sqlbatch.Window{}))[0][3])
	require.Len(w, w.run(w.Redrive(0, ids(1), sqlbatch.Window{})), 1)
	require.Len(w, w.run(w.Redrive(10, nil, sqlbatch.Window{})), 1)
	require.Equal(w, []any{want(1), want(2)}, []any{place(1), place(2)})
	w.line(2, "a", 4)
	require.Equal(w, []byte{1, 2, 3, 4}, w.read(r).ids)
	require.Len(w, w.run(w.Archive(w.items(3))), 1)
	require.Equal(w, []any{"done", want(3)}, []any{w.get(3)["state"], place(3)})
	w.line(3, "b", 3)
	require.Len(w, w.run(w.Archive(w.items(3))), 1)
	require.Equal(w, []any{int64(3), "b"}, []any{place(3)[0], place(3)[2]}, "the older copy gave way")
}

func peeksBySeq(w *world) {
	w.joinAs(Consumer, time.Hour)
	w.line(3, "a", 1)
	w.line(0, "b", 2)
	w.line(2, "c", 3)
	w.line(0, "d", 4, 5)
	require.Equal(w, []byte{1, 2, 3, 4, 5}, w.inState(sqlbatch.Ready, 10))
	require.Equal(w, []byte{1, 2, 3}, w.inState(sqlbatch.Ready, 3))
	rows := w.shown(sqlbatch.Ready, 3, nil)
	third := EntryOf(w, rows[2])
	require.Equal(w, list(2, "c"), third.of("slot", "order_key"))
	place := &sqlbatch.Place{At: third["seq"].(int64)}
	require.Equal(w, []any{id4(4), id4(5)}, firsts(w.shown(sqlbatch.Ready, 3, place), 1))
	require.Equal(w, outlines(rows[2:]), w.run(w.Browse(sqlbatch.Ready, 10, nil, sqlbatch.Filter{Key: "c"})))
	require.Empty(w, w.run(w.Browse(sqlbatch.Ready, 10, nil, sqlbatch.Filter{Key: "c", Type: "none"})))

	w.extend(1, 3, 4)
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(2)[0], Delay: time.Hour}, {Item: w.items(5)[0]}})), 2)
	require.Equal(w, []byte{1, 3, 4}, w.inState(sqlbatch.Leased, 10))
	require.Equal(w, []byte{2}, w.inState(sqlbatch.Scheduled, 10))
	require.Equal(w, []byte{5}, w.inState(sqlbatch.Ready, 10))
	for _, state := range []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased} {
		require.Equal(w, outlines(w.shown(state, 10, nil)), w.run(w.Browse(state, 10, nil, sqlbatch.Filter{})), state)
	}
	require.Equal(w, []any{id4(4)}, firsts(w.run(w.Browse(sqlbatch.Leased, 10, place, sqlbatch.Filter{})), 1))
	place.At, place.Upto = 0, place.At
	require.Equal(w, []any{id4(1), id4(3)}, firsts(w.run(w.Browse(sqlbatch.Leased, 10, place, sqlbatch.Filter{})), 1))
}

func id4(n byte) any { id := ID(n); return string(id[:]) }

func firsts(rows [][]any, column int) (all []any) {
	for _, row := range rows {
		all = append(all, row[column])
	}
	return all
}

func purgesBySeq(w *world) {
	r := w.reader()
	for n := range byte(12) {
		w.line(int(n)%3, strings.Repeat("k", int(n)%2), n+1)
	}
	var marks []sqlbatch.MarkItem
	for _, item := range w.items(8, 9, 10, 11, 12) {
		marks = append(marks, sqlbatch.MarkItem{Item: item, SlotFence: r.Slots[0].Fence})
	}
	require.Len(w, w.run(w.MarkOrdered(Consumer, marks)), 5)
	w.extend(8, 9, 10, 11, 12)
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(7)[0], Delay: time.Hour}})), 1)
	var window sqlbatch.Window
	window.Before = w.now() + 1000
	var gone []byte
	for range 3 {
		rows := w.run(w.Purge(sqlbatch.Ready, 2, window))
		require.Len(w, rows, 2)
		gone = append(gone, Numbers(rows)...)
		for _, row := range rows {
			window.After = max(window.After, row[1].(int64))
		}
	}
	require.ElementsMatch(w, []byte{1, 2, 3, 4, 5, 6}, gone)
	require.ElementsMatch(w, []byte{1, 2}, gone[:2], "by seq")
	require.Empty(w, w.run(w.Purge(sqlbatch.Ready, 2, window)))
	require.Empty(w, w.run(w.Purge(sqlbatch.Scheduled, 2, sqlbatch.Window{Before: 1})))
	require.Empty(w, w.run(w.Purge(sqlbatch.Leased, 2, sqlbatch.Window{Before: 1})))
	require.Equal(w, []byte{7}, Numbers(w.run(w.Purge(sqlbatch.Scheduled, 2, sqlbatch.Window{}))))
	require.Len(w, w.run(w.Purge(sqlbatch.Leased, 10, sqlbatch.Window{})), 5)
}

func orderedStats(w *world) {
	w.joinAs(Consumer, time.Hour)
	for n := range byte(8) {
		w.line(int(n)%2, "a", n+1)
	}
	w.shift("chanq_orders.due_at", -time.Minute, w.is(8))
	w.extend(6, 7)
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(3)[0], Delay: time.Hour}})), 1)
	require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.items(4)[0]}})), 1)
	require.Len(w, w.run(w.Archive(w.items(5))), 1)
	row := w.run(w.Stats(100))[0]
	require.Equal(w, list(3, 1, 2, 1, 1), row[:5])
	require.InDelta(w, time.Minute.Milliseconds(), row[5], 30_000)
	require.Equal(w, int64(0), row[6])
	require.Equal(w, int64(2), w.run(w.Stats(2))[0][0])
}

func slotStats(w *world) {
	w.reader()
	w.line(1, "a", 1)
	w.line(1, "b", 2, 3)
	w.line(1, "", 4)
	w.line(1, "a", 5, 6)
	w.line(2, "", 7)
	w.extend(1, 2)
	w.shift("chanq_orders.enqueued_at", -time.Minute, w.is(1))
	rows := w.run(w.SlotStats(100))
	require.Len(w, rows, slots)
	require.Equal(w, []any{int64(0), nameOf(Consumer), int64(0), int64(0), nil, nil, int64(0)}, rows[0])
	one := rows[1]
	require.Equal(w, list(6, 2), one[2:4])
	require.InDelta(w, time.Minute.Milliseconds(), one[4], 30_000)
	require.Equal(w, []any{"a", int64(3)}, one[5:])
	require.Equal(w, []any{int64(1), nil, int64(0)}, []any{rows[2][2], rows[2][5], rows[2][6]}, "without a key")
	require.Equal(w, []any{int64(3), "b", int64(2)}, []any{w.run(w.SlotStats(3))[1][2], w.run(w.SlotStats(3))[1][5], w.run(w.SlotStats(3))[1][6]})
	w.run(w.Leave(Consumer))
	require.Nil(w, w.run(w.SlotStats(3))[1][1])
}

func orderedDrop(w *world) {
	w.reader()
	w.line(0, "a", 1)
	w.dropTables()
	require.Empty(w, w.run(w.Version()))
	plain := w.Engine.Dialect.Queue(Orders)
	testdb.MigrateTables(w.T, w.Engine.Dialect, w.Tables(), Orders)
	require.EqualValues(w, 1, w.run(plain.Version())[0][4], "it may become a plain one")
	require.Empty(w, w.run(plain.Consumers()))
	var left int
	require.NoError(w, w.DB.QueryRow("SELECT COUNT(*) FROM chanq__slots").Scan(&left))
	require.Zero(w, left)
}

func reaches(w *world) {
	reach := func(after int64, rows int) int64 {
		w.Helper()
		found := w.run(w.Reach(after, rows))
		require.Len(w, found, 1)
		return found[0][0].(int64)
	}
	require.EqualValues(w, int64(end), reach(0, 1), "an empty queue")
	for n, slot := range []int{1, 0, 1, 1, 0, 1, 1} {
		w.line(slot, "a", byte(n+1))
	}
	var seqs []int64
	for _, row := range w.shown(sqlbatch.Ready, 10, nil) {
		seqs = append(seqs, EntryOf(w, row)["seq"].(int64))
	}
	require.Len(w, seqs, 7)
	require.Equal(w, seqs[0], reach(0, 1))
	require.Equal(w, seqs[2], reach(0, 3))
	require.Equal(w, seqs[3], reach(seqs[0], 3), "the third behind the first")
	require.EqualValues(w, int64(end), reach(seqs[5], 2), "there is one more")

	upto := seqs[3]
	page := w.shown(sqlbatch.Ready, 10, &sqlbatch.Place{At: seqs[0], Upto: upto})
	require.Equal(w, []any{id4(2), id4(3), id4(4)}, firsts(page, 1))
	require.ElementsMatch(w, []byte{2, 3, 4}, Numbers(w.run(w.Purge(sqlbatch.Ready, 10, sqlbatch.Window{After: seqs[0], Upto: upto}))))
	require.Equal(w, []byte{1, 5, 6, 7}, w.inState(sqlbatch.Ready, 10))
}
