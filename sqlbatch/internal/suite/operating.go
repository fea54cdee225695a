package suite

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var operating = []test{
	{"ListsAndGetShowEachState", showsEach},
	{"ListsShowTheOrderOfClaims", listOrder},
	{"ListsPageThroughEachState", pages},
	{"ABrowseLooksAtNoLease", browses},
	{"ABrowseReturnsWhatItLooksForAndTheLastThatItRead", looksFor},
	{"CountsStopAtTheLimit", counts},
	{"AQueueIsEmptyWithoutALiveMessage", empties},
	{"ACountEndsAtTheLimitWhateverTheOtherStatesHold", countsBeside},
	{"APurgeTakesOneStateOnlyAndNoMoreThanAsked", purged},
	{"APurgeLeavesWhatCameAfterItBegan", purgedBefore},
	{"StepsThroughTheEndedKeepToTheirWindow", windows},
	{"StepsThroughTheLivingGoOnWhereTheLastOneEnded", liveWindows},
	{"CancelDeletesWhatIsLive", cancelled},
	{"RunNowMakesWhatIsScheduledDue", runNow},
	{"ASurrenderEndsTheLeasesOfOneConsumer", surrendered},
	{"ADiscardDeletesTheDeadThatAreMeant", discarded},
	{"ATrimDeletesWhatEndedLongAgo", trimmed},
	{"ARedriveMakesADeadMessageNew", redriven},
	{"ARedriveTakesTheOldestOrThoseThatAreMeant", redrivenInTurn},
	{"ARedriveLeavesWhatCannotLive", redrivenRoom},
	{"ARedriveIsNotHeldUpByAKeyThatDiedAfterItBegan", redrivenBefore},
}

// oneOfEach makes a message in each state: 1 ready, 2 scheduled, 3 leased, 4 dead,
// 5 done.
func (w *world) oneOfEach() {
	w.Helper()
	items := w.leased(3, 4, 5)
	require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[1]}})), 1)
	require.Len(w, w.run(w.Archive(items[2:])), 1)
	w.send(sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2), Priority: 2, Delay: time.Hour})
}

func showsEach(w *world) {
	w.oneOfEach()
	for i, state := range States {
		n := byte(i + 1)
		require.Equal(w, []byte{n}, w.inState(state, 10), state)
		rows := w.shown(state, 10, nil)
		require.Equal(w, string(state), rows[0][0])
		require.Equal(w, rows, w.run(w.Get(ID(n))), "Get has the columns of Peek")
	}
	require.Empty(w, w.run(w.Get(ID(9))))
	w.send(sqlbatch.Row{ID: ID(6), Body: []byte("012\x00456")})
	showsParts(w, ID(6))
	require.Empty(w, w.run(w.Part(ID(9), 0, 1)))
}

// showsParts requires that Part returns any part of a body, and its whole length.
func showsParts(w *world, id [16]byte) {
	whole := w.run(w.Get(id))[0]
	const body = 19 // the column
	text, _ := whole[body].(string)
	for _, c := range []struct {
		from, n int
		part    any
	}{{0, 100, text}, {0, 2, text[:2]}, {2, 3, text[2:5]}, {4, 100, text[4:]}, {100, 5, ""}, {0, 0, nil}, {3, 0, nil}} {
		row := w.run(w.Part(id, c.from, c.n))[0]
		require.Equal(w, whole[:body], row[:body])
		require.Equal(w, c.part, row[body], "%d bytes from %d", c.n, c.from)
		require.EqualValues(w, len(text), row[body+1])
		require.Equal(w, whole[body+1:], row[body+2:], "the columns of an ordered queue")
	}
}

func listOrder(w *world) {
	w.send(sqlbatch.Row{ID: ID(3)}, sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2), Priority: 1}, sqlbatch.Row{ID: ID(4), Priority: -1})
	require.Equal(w, []byte{2, 1, 3}, w.inState(sqlbatch.Ready, 3))
}

// pages stores, in each lane, three messages of one time and two a second later. A page ends at any place among them, and the message that
// it ended with is deleted before the next page begins.
func pages(w *world) {
	for state, want := range map[sqlbatch.State]int{sqlbatch.Ready: 40, sqlbatch.Scheduled: 20, sqlbatch.Leased: 20, sqlbatch.Dead: 20, sqlbatch.Done: 20} {
		table := w.fillPages(state)
		all := w.shown(state, 100, nil)
		require.Len(w, all, want, state)
		w.browsesAll(state, all)
		for from := 0; from < want; {
			end := min(from+2, want)
			var after *sqlbatch.Place
			if from > 0 {
				after = w.place(all[from-1])
				w.exec("DELETE FROM %s WHERE %s", table, w.is(after.ID[0]))
			}
			require.Equal(w, all[from:end], w.shown(state, 2, after), "%s, page from %d", state, from)
			from = end
		}
		require.Empty(w, w.shown(state, 2, w.place(all[want-1])), state)
	}
}

// browsesAll pages through the same rows without their headers and bodies.
func (w *world) browsesAll(state sqlbatch.State, all [][]any) {
	w.Helper()
	var seen [][]any
	for page := w.run(w.Browse(state, 7, nil, sqlbatch.Filter{})); len(page) > 0; page = w.run(w.Browse(state, 7, w.place(page[len(page)-1]), sqlbatch.Filter{})) {
		seen = append(seen, page...)
	}
	require.Equal(w, outlines(all), seen, state)
}

// outlines returns rows of Peek as Browse returns them.
func outlines(rows [][]any) (all [][]any) {
	for _, row := range rows {
		row = slices.Clone(row)
		headers, body := slices.Index(entryColumns, "headers"), slices.Index(entryColumns, "body")
		row[headers], row[body] = nil, int64(len(row[body].(string)))
		all = append(all, row)
	}
	return all
}

// browses tests that leased messages keep their place among ready ones, and that scheduled ones are not in between.
func browses(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), Body: []byte("long")}, sqlbatch.Row{ID: ID(2), Headers: []byte("h")}, sqlbatch.Row{ID: ID(3)}, sqlbatch.Row{ID: ID(4), Delay: time.Hour})
	require.Len(w, w.claim(2), 2)
	want := outlines(append(w.shown(sqlbatch.Leased, 10, nil), w.shown(sqlbatch.Ready, 10, nil)...))
	require.Len(w, want, 3)
	require.Equal(w, want, w.run(w.Browse(sqlbatch.Ready, 10, nil, sqlbatch.Filter{})))
	leased := w.run(w.Browse(sqlbatch.Leased, 10, nil, sqlbatch.Filter{}))
	require.Contains(w, [][][]any{want, want[:2]}, leased)
	require.Equal(w, []any{id4(4)}, firsts(w.run(w.Browse(sqlbatch.Scheduled, 10, nil, sqlbatch.Filter{})), 1))
}

// looksFor tests that a browse leaves out no message that its filter looks for, and not the last one that it has read.
func looksFor(w *world) {
	for _, state := range States {
		w.exec("DELETE FROM chanq_orders")
		ns := []byte{1, 2, 3, 4, 5, 6, 7}
		for _, n := range ns {
			row := sqlbatch.Row{ID: ID(n), Type: []string{"even", "odd"}[n%2]}
			if state == sqlbatch.Scheduled {
				row.Delay = time.Hour
			}
			w.send(row)
		}
		if state != sqlbatch.Ready && state != sqlbatch.Scheduled {
			require.Len(w, w.claim(100), len(ns))
		}
		switch state {
		case sqlbatch.Dead:
			var deadLetters []sqlbatch.DeadLetterItem
			for i, item := range w.items(ns...) {
				deadLetters = append(deadLetters, sqlbatch.DeadLetterItem{Item: item, Cause: sqlbatch.CauseExhausted + sqlbatch.Cause(i%2), Fingerprint: int64(i % 3)})
			}
			require.Len(w, w.run(w.DeadLetter(deadLetters)), len(ns))
		case sqlbatch.Done:
			require.Len(w, w.run(w.Archive(w.items(ns...))), len(ns))
		}
		all := w.run(w.Browse(state, 100, nil, sqlbatch.Filter{}))
		require.Len(w, all, len(ns), state)
		one := int64(1)
		filters := map[*sqlbatch.Filter]func(Entry) bool{
			{Among: 5, Type: "even"}: func(e Entry) bool { return e["type"] == "even" },
			{Among: 5, Type: "none"}: func(Entry) bool { return false },
		}
		if state == sqlbatch.Dead {
			filters[&sqlbatch.Filter{Among: 5, Cause: sqlbatch.CauseExhausted}] = func(e Entry) bool { return e["cause"] == int64(sqlbatch.CauseExhausted) }
			filters[&sqlbatch.Filter{Among: 5, Fingerprint: &one}] = func(e Entry) bool { return e["fingerprint"] == one }
			filters[&sqlbatch.Filter{Among: 5, Fingerprint: new(int64)}] = func(e Entry) bool { return e["fingerprint"] == nil }
		}
		for f, is := range filters {
			likes := func(rows [][]any) (ids []any) {
				for _, row := range rows {
					if is(EntryOf(w, row)) {
						ids = append(ids, row[1])
					}
				}
				return ids
			}
			want := likes(all[:5])
			page := w.run(w.Browse(state, 5, nil, *f))
			require.Equal(w, want, likes(page), "%s, %+v", state, f)
			require.Equal(w, all[4], page[len(page)-1], "%s, %+v", state, f)
			if len(want) > 0 {
				require.Equal(w, want[0], likes(w.run(w.Browse(state, 1, nil, *f)))[0], "%s, %+v", state, f)
			}
		}
	}
}

func (w *world) place(row []any) *sqlbatch.Place {
	w.Helper()
	e := EntryOf(w, row)
	at := e["due_at"]
	if at == nil {
		at = e["ended_at"]
	}
	return &sqlbatch.Place{Priority: int8(e["priority"].(int64)), At: at.(int64), ID: [16]byte([]byte(e["id"].(string)))}
}

// fillPages returns the table that the messages are in.
func (w *world) fillPages(state sqlbatch.State) string {
	w.Helper()
	w.exec("DELETE FROM chanq_orders")
	send := func(first byte) (ns []byte) {
		for n := first; n < first+20; n++ {
			w.send(sqlbatch.Row{ID: ID(n), Priority: int8(n%4) - 1})
			ns = append(ns, n)
		}
		return ns
	}
	held := send(1)
	if state != sqlbatch.Scheduled {
		require.Len(w, w.claim(100), 20)
	}
	table, column, at := "chanq_orders", "due_at", w.at(1000)
	switch state {
	case sqlbatch.Ready:
		send(21)
		w.lapse(held...)
	case sqlbatch.Scheduled:
		at = w.at(w.now()/1000 + 3600)
	case sqlbatch.Dead:
		var deadLetters []sqlbatch.DeadLetterItem
		for _, item := range w.items(held...) {
			deadLetters = append(deadLetters, sqlbatch.DeadLetterItem{Item: item})
		}
		require.Len(w, w.run(w.DeadLetter(deadLetters)), 20)
		table, column = "chanq_orders__dead", "ended_at"
	case sqlbatch.Done:
		require.Len(w, w.run(w.Archive(w.items(held...))), 20)
		table, column = "chanq_orders__done", "ended_at"
	}
	w.exec("UPDATE %s SET %s = %s", table, column, at)
	for _, n := range []byte{1, 2, 3, 4, 17, 18, 19, 20, 21, 22, 23, 24, 37, 38, 39, 40} {
		w.shift(table+"."+column, time.Second, w.is(n))
	}
	return table
}

func counts(w *world) {
	require.Equal(w, [][]any{list(0, 0, 0, 0, 0, nil, 0)}, w.run(w.Stats(10)))
	w.oneOfEach()
	stats := func(limit int) []any { return w.run(w.Stats(limit))[0] }
	require.Equal(w, list(1, 1, 1, 1, 1), stats(10)[:5])
	require.GreaterOrEqual(w, stats(10)[5], int64(0), "ms since the oldest ready message was due")
	w.shift("chanq_orders.due_at", -time.Minute, "leased_by IS NULL AND priority = 0")
	require.InDelta(w, time.Minute.Milliseconds()+15_000, stats(10)[5], 15_000)
	for i := byte(10); i < 30; i++ {
		w.send(sqlbatch.Row{ID: ID(i), Priority: int8(i%4) - 1}, sqlbatch.Row{ID: ID(i + 100), Priority: int8(i%4) - 1, Delay: time.Hour})
	}
	require.Equal(w, list(7, 7, 1, 1, 1), stats(7)[:5])
}

func empties(w *world) {
	empty := func(want int) {
		w.Helper()
		require.Equal(w, [][]any{list(want)}, w.run(w.Empty()))
	}
	empty(1)
	for _, only := range []byte{1, 2, 3} { // ready, scheduled, leased
		w.exec("DELETE FROM chanq_orders__dead")
		w.exec("DELETE FROM chanq_orders__done")
		w.oneOfEach()
		w.exec("DELETE FROM chanq_orders WHERE NOT (%s)", w.is(only))
		empty(0)
		require.Equal(w, []byte{only}, Numbers(w.run(w.Cancel(ids(1, 2, 3)))))
		require.Equal(w, list(0, 0, 0, 1, 1), w.run(w.Stats(10))[0][:5])
		empty(1)
	}
}

func countsBeside(w *world) {
	const limit, few, many = 20, 5, 60
	place := map[sqlbatch.State]time.Duration{sqlbatch.Ready: 0, sqlbatch.Scheduled: 2 * time.Hour, sqlbatch.Leased: 2 * time.Hour}
	next := 0
	put := func(state sqlbatch.State, n int, sooner bool) {
		delay := place[state]
		if sooner {
			delay /= 2
		}
		var rows []sqlbatch.Row
		for range n {
			next++
			rows = append(rows, sqlbatch.Row{ID: [16]byte{byte(next >> 8), byte(next)}, Priority: int8(next%4 - 1), Delay: delay})
			if state == sqlbatch.Leased {
				rows[len(rows)-1].Delay = 0
			}
		}
		w.send(rows...)
		if state == sqlbatch.Leased {
			p := ClaimOf(n)
			p.Lease = delay
			require.Len(w, w.run(w.Claim(p)), n)
		}
	}
	states := []sqlbatch.State{sqlbatch.Leased, sqlbatch.Scheduled, sqlbatch.Ready} // in this order, because a claim takes the messages that are ready
	for i, which := range states {
		w.exec("DELETE FROM chanq_orders")
		want := map[sqlbatch.State]int64{}
		for j, state := range states {
			if j == i {
				put(state, few, false)
				want[state] = few
			} else {
				put(state, many, true)
				want[state] = limit
			}
		}
		require.Equal(w, []any{want[sqlbatch.Ready], want[sqlbatch.Scheduled], want[sqlbatch.Leased]}, w.run(w.Stats(limit))[0][:3], which)
	}
}

func purged(w *world) {
	for i, state := range States {
		w.exec("DELETE FROM chanq_orders__dead")
		w.exec("DELETE FROM chanq_orders__done")
		w.oneOfEach()
		var lane sqlbatch.Window
		if state == sqlbatch.Scheduled {
			lane.Priority = 2
		}
		require.Equal(w, []byte{byte(i + 1)}, Numbers(w.run(w.Purge(state, 10, lane))), state)
		require.Empty(w, w.run(w.Purge(state, 10, lane)))
		for j := range States {
			want := 1
			if j == i {
				want = 0
			}
			require.Len(w, w.run(w.Get(ID(byte(j+1)))), want)
		}
	}
	w.exec("DELETE FROM chanq_orders")
	w.send(sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2), Priority: 1}, sqlbatch.Row{ID: ID(3), Priority: -1})
	require.Equal(w, []byte{2}, Numbers(w.run(w.Purge(sqlbatch.Ready, 2, sqlbatch.Window{Priority: 1}))))
	require.Equal(w, []byte{1}, Numbers(w.run(w.Purge(sqlbatch.Ready, 2, sqlbatch.Window{}))))
	left := w.claim(10)
	require.Equal(w, []byte{3}, left)
	w.lapse(left...)
	require.Equal(w, left, Numbers(w.run(w.Purge(sqlbatch.Ready, 2, sqlbatch.Window{Priority: -1}))), "its lease expired")
}

// The time of a live message is when it entered its state: due, sent or claimed. A fence contains the time of its claim.
func purgedBefore(w *world) {
	const before = 500_000_000 * 1000
	for column, state := range map[string]sqlbatch.State{"due_at": sqlbatch.Ready, "enqueued_at": sqlbatch.Scheduled} {
		w.exec("DELETE FROM chanq_orders")
		w.send(sqlbatch.Row{ID: ID(1), Delay: delayOf[state]}, sqlbatch.Row{ID: ID(2), Delay: delayOf[state]})
		w.exec("UPDATE chanq_orders SET %s = %s", column, w.at(before/1000))
		w.shift("chanq_orders."+column, -time.Millisecond, w.is(1))
		require.Equal(w, []byte{1}, Numbers(w.run(w.Purge(state, 10, sqlbatch.Window{Before: before}))), state)
		require.Equal(w, []byte{2}, Numbers(w.run(w.Purge(state, 10, sqlbatch.Window{}))), "without a bound")
	}
	w.leased(1, 2)
	w.exec("UPDATE chanq_orders SET fence = %d WHERE %s", int64(before-1)<<sqlbatch.FenceBits+1<<sqlbatch.FenceBits, w.is(1)) // the greatest fence of the millisecond before
	w.exec("UPDATE chanq_orders SET fence = %d WHERE %s", int64(before)<<sqlbatch.FenceBits+1, w.is(2))                       // the least fence of this millisecond
	require.Equal(w, []byte{1}, Numbers(w.run(w.Purge(sqlbatch.Leased, 10, sqlbatch.Window{Before: before}))))
	require.Equal(w, []byte{2}, Numbers(w.run(w.Purge(sqlbatch.Leased, 10, sqlbatch.Window{}))))
}

var delayOf = map[sqlbatch.State]time.Duration{sqlbatch.Scheduled: time.Hour}

// A step begins where the previous one ended, and messages that arrive behind the first step are left for the next call.
func windows(w *world) {
	const unit = 100_000 // milliseconds between two ends: long enough for a slow machine
	steps := map[string]func(n int, w sqlbatch.Window) sqlbatch.Statement{
		"purge of the dead": func(n int, win sqlbatch.Window) sqlbatch.Statement { return w.Purge(sqlbatch.Dead, n, win) },
		"purge of the done": func(n int, win sqlbatch.Window) sqlbatch.Statement { return w.Purge(sqlbatch.Done, n, win) },
		"redrive":           func(n int, win sqlbatch.Window) sqlbatch.Statement { return w.Redrive(n, nil, win) },
		"trim": func(n int, win sqlbatch.Window) sqlbatch.Statement {
			return w.Trim(sqlbatch.Done, time.Duration(w.now()-win.Before+unit/2)*time.Millisecond, n, win.After) // for a clock that advances
		},
	}
	for name, step := range steps {
		for _, table := range []string{"chanq_orders", "chanq_orders__dead", "chanq_orders__done"} {
			w.exec("DELETE FROM %s", table)
		}
		items := w.leased(1, 2, 3, 4)
		table := "chanq_orders__done"
		if name == "purge of the dead" || name == "redrive" {
			table = "chanq_orders__dead"
			w.run(Settles(w, items...)["dead-letter"])
		} else {
			w.run(w.Archive(items))
		}
		for n := byte(1); n <= 4; n++ {
			w.exec("UPDATE %s SET ended_at = %s WHERE %s", table, w.at(int64(n)*unit/1000), w.is(n))
		}
		win := sqlbatch.Window{After: 2 * unit, Before: 4 * unit}
		if name != "trim" { // trim takes no ids
			require.Empty(w, w.run(step(1, sqlbatch.Window{After: 2 * unit, AfterID: ID(2), Before: 3 * unit})), name)
		}
		rows := w.run(step(1, win))
		require.Equal(w, []byte{2}, Numbers(rows), name)
		require.EqualValues(w, 2*unit, rows[0][1], "when it ended: %s", name)
		require.Equal(w, []byte{3}, Numbers(w.run(step(10, win))), name)
		require.Empty(w, w.run(step(10, win)), name)
		require.ElementsMatch(w, []byte{1, 4}, Numbers(w.run(step(10, sqlbatch.Window{Before: 5 * unit}))), name)
	}
}

// liveWindows stores four messages of each live state, the second and the third with the same time, and tests steps of one message.
func liveWindows(w *world) {
	for _, state := range []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased} {
		w.exec("DELETE FROM chanq_orders")
		var rows []sqlbatch.Row
		for n := byte(1); n <= 5; n++ {
			rows = append(rows, sqlbatch.Row{ID: ID(n), Priority: int8(n / 5), Delay: delayOf[state]})
		}
		w.send(rows...)
		if state == sqlbatch.Leased {
			w.claim(10)
		}
		w.exec("UPDATE chanq_orders SET due_at = %s WHERE priority = 0", w.at(placeOf[state]))
		w.shift("chanq_orders.due_at", time.Second, w.is(4))
		w.shift("chanq_orders.due_at", -time.Second, w.is(1))
		var purged []byte
		for win := (sqlbatch.Window{}); ; {
			step := w.run(w.Purge(state, 1, win))
			if len(step) == 0 {
				break
			}
			purged = append(purged, Numbers(step)...)
			win.After, win.AfterID = step[0][1].(int64), ID(purged[len(purged)-1])
		}
		require.Equal(w, []byte{1, 2, 3, 4}, purged, "%s, in the order of claims", state)
		require.Equal(w, []byte{5}, Numbers(w.run(w.Purge(state, 2, sqlbatch.Window{Priority: 1}))), "%s, of another priority", state)
	}
}

// placeOf has a second in which messages of a state are due.
var placeOf = map[sqlbatch.State]int64{sqlbatch.Ready: 500_000_000, sqlbatch.Leased: 500_000_000, sqlbatch.Scheduled: 4_000_000_000}

func cancelled(w *world) {
	w.oneOfEach()
	lease := w.items(3)
	require.ElementsMatch(w, []byte{1, 2, 3}, Numbers(w.run(w.Cancel(ids(5, 3, 4, 2, 1)))))
	require.Empty(w, w.run(w.Ack(lease)))
}

// runNow: a message that waits for its time or for a retry is due; others stay as they are.
func runNow(w *world) {
	items := w.leased(3, 4, 5, 6)
	require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[1]}})), 1)
	require.Len(w, w.run(w.Archive(items[2:3])), 1)
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: items[3], Delay: time.Hour, Error: "no"}})), 1)
	w.send(sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2), Priority: 2, Delay: time.Hour})
	ready := w.get(1).of("due_at")
	require.ElementsMatch(w, []byte{2, 6}, Numbers(w.run(w.RunNow(ids(9, 6, 5, 4, 3, 2, 1)))))
	require.Empty(w, w.run(w.RunNow(ids(2, 6))), "they are due")
	require.Equal(w, list("ready", 1, "no"), w.get(6).of("state", "attempts", "last_error"))
	require.Equal(w, ready, w.get(1).of("due_at"))
	require.ElementsMatch(w, []byte{1, 2, 6}, w.claim(10))
	require.Len(w, w.run(w.Ack(items[:1])), 1, "its lease is as it was")
}

// surrendered: a message counts as one whose lease has expired, and its former holder cannot settle it. Others stay as they are.
func surrendered(w *world) {
	items := w.leased(1, 2, 3, 4)
	w.sendAll(5)
	require.Empty(w, w.run(w.Surrender(ID(7), ids(1, 2))), "of another consumer")
	w.lapse(4)
	before := w.get(1).of("due_at")
	require.ElementsMatch(w, []byte{1, 2}, Numbers(w.run(w.Surrender(Consumer, ids(9, 5, 4, 2, 1)))))
	require.Equal(w, before, w.get(1).of("due_at"), "it keeps its place")
	require.Equal(w, list("ready", 1, nil), w.get(1).of("state", "attempts", "leased_by"))
	require.Empty(w, w.run(w.Surrender(Consumer, ids(1, 2))), "once")
	require.Empty(w, w.run(w.SkipLocked().Ack(items[:2])), "its fence has grown")
	require.Empty(w, w.run(w.SkipLocked().Extend(Consumer, items[:2], time.Hour)))
	rows := ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))
	require.Len(w, rows, 3, "1, 2 and 5")
	require.Equal(w, []int64{1, 1, 0}, []int64{rows[1].Lapses, rows[2].Lapses, rows[5].Lapses})
	require.Len(w, w.run(w.Ack(items[2:3])), 1, "its lease is as it was")
}

func discarded(w *world) {
	w.deadLetter(sqlbatch.Row{ID: ID(6)})
	w.oneOfEach()
	require.Equal(w, []byte{4}, Numbers(w.run(w.Discard(ids(5, 4, 3, 2, 1)))))
	require.Empty(w, w.run(w.Discard(ids(4))))
	require.Equal(w, []byte{6}, w.inState(sqlbatch.Dead, 10))
	for _, n := range []byte{1, 2, 3, 5} {
		require.Len(w, w.run(w.Get(ID(n))), 1)
	}
}

func trimmed(w *world) {
	w.oneOfEach()
	require.Empty(w, w.run(w.Trim(sqlbatch.Done, time.Hour, 10, 0)))
	w.shift("chanq_orders__done.ended_at", -time.Hour-time.Millisecond, "1 = 1")
	require.Equal(w, []byte{5}, Numbers(w.run(w.Trim(sqlbatch.Done, time.Hour, 10, 0))))
}

func redriven(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), Priority: 2, Key: "k", Type: "t", Headers: []byte("h"), Body: []byte("b"), TTL: time.Hour})
	w.claim(1)
	lease := w.items(1)[0]
	w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: lease, Error: "why"}}))
	sent := w.get(1)["enqueued_at"]
	require.Equal(w, []byte{1}, Numbers(w.run(w.Redrive(10, nil, sqlbatch.Window{}))))
	got := w.get(1)
	require.Equal(w, list("ready", 2, lease.Fence+2, 0, sent, nil, nil, nil, "k", "t", "why", "h", "b"),
		got.of("state", "priority", "fence", "attempts", "enqueued_at", "expires_at", "leased_by", "holder", "dedup_key", "type", "last_error", "headers", "body"))
	require.InDelta(w, w.now(), got["due_at"], 30_000)
	require.Empty(w, w.run(w.Redrive(10, nil, sqlbatch.Window{})))
	require.Equal(w, []byte{1}, w.claim(1))
}

func redrivenInTurn(w *world) {
	w.deadLetter(sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2)}, sqlbatch.Row{ID: ID(3)})
	for n := byte(1); n <= 3; n++ {
		w.exec("UPDATE chanq_orders__dead SET ended_at = %s WHERE %s", w.at(10-int64(n)), w.is(n))
	}
	redrive := func(n int, ids [][16]byte) []byte { return Numbers(w.run(w.Redrive(n, ids, sqlbatch.Window{}))) }
	require.Equal(w, []byte{3}, redrive(1, nil))
	require.Equal(w, []byte{1}, redrive(0, ids(3, 1)))
	require.Equal(w, []byte{2}, redrive(1, nil))
}

func redrivenRoom(w *world) {
	for name, redrive := range map[string]sqlbatch.Statement{
		"oldest": w.Redrive(10, nil, sqlbatch.Window{}), "listed": w.Redrive(0, ids(1, 2, 3, 4, 5), sqlbatch.Window{}),
	} {
		w.exec("DELETE FROM chanq_orders")
		w.exec("DELETE FROM chanq_orders__dead")
		w.deadLetter(sqlbatch.Row{ID: ID(1), Key: "live"}, sqlbatch.Row{ID: ID(3), Key: "twice"}, sqlbatch.Row{ID: ID(2), Key: "twice"},
			sqlbatch.Row{ID: ID(4)}, sqlbatch.Row{ID: ID(5), Key: "free"})
		w.send(sqlbatch.Row{ID: ID(9), Key: "live"}, sqlbatch.Row{ID: ID(4)})
		require.ElementsMatch(w, []byte{2, 5}, Numbers(w.run(redrive)), name)
		require.Empty(w, w.run(redrive), name)
		require.Len(w, w.shown(sqlbatch.Dead, 10, nil), 3)
	}
}

// Of two messages with one key the one with the smaller id goes first, unless this redrive leaves it out.
func redrivenBefore(w *world) {
	w.deadLetter(sqlbatch.Row{ID: ID(2), Key: "k"}, sqlbatch.Row{ID: ID(1), Key: "k"})
	w.exec("UPDATE chanq_orders__dead SET ended_at = %s WHERE %s", w.at(1), w.is(2))
	w.exec("UPDATE chanq_orders__dead SET ended_at = %s WHERE %s", w.at(2), w.is(1))
	require.Equal(w, []byte{2}, Numbers(w.run(w.Redrive(10, nil, sqlbatch.Window{Before: 2000}))))
}
