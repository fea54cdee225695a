package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var settling = []test{
	{"SettlesApplyOnlyToTheirFence", onlyTheirFence},
	{"LeasesOfManyClaimsAreSettledAtOnce", manyClaims},
	{"ANackSchedulesAndKeepsTheAttempt", nacked},
	{"ASnoozeSchedulesAndRefundsTheAttempt", snoozed},
	{"AReleaseGivesBackPlaceAndAttempt", released},
	{"ArchiveAndDeadLetterMoveTheWholeMessage", moved},
	{"AnExtensionNeverMovesAnEndBack", extended},
	{"ALookTellsTheFences", looked},
	{"WhatIsAtTheBoundsOfTheTablesIsClaimedAndSettled", bounds},
}

func onlyTheirFence(w *world) {
	for form, q := range map[string]struct {
		sqlbatch.Queue
		run func(sqlbatch.Statement) [][]any
	}{
		"alone": {w.Queue, w.run}, "skipping": {w.SkipLocked(), w.run},
		"in a transaction": {w.InTx(), w.inTx}, "in one, skipping": {w.InTx().SkipLocked(), w.inTx}, "in one of chanq's": {w.InOwnTx(), w.inTx},
	} {
		for name := range Settles(q) {
			items := w.leased(1, 2, 3)
			mine, stale, gone := items[0], items[1], sqlbatch.Item{ID: ID(9), Fence: items[0].Fence}
			stale.Fence--
			st := Settles(q, mine, stale, gone)[name]
			require.Equal(w, []sqlbatch.Item{mine}, Items(q.run(st), 1), "%s %s", name, form)
			if name != "extend" {
				require.Empty(w, q.run(st), "%s %s again", name, form)
			}
			require.Equal(w, items[1:], w.items(2, 3), "%s %s", name, form)
		}
	}
}

// The leases of one claim have one fence; the fences of different claims are far apart.
func manyClaims(w *world) {
	for name := range Settles(w) {
		w.leased(1, 2, 3)
		for n, fence := range map[byte]int64{1: 7, 2: sqlbatch.LastFence - 1, 3: 1 << 41} {
			w.exec("UPDATE chanq_orders SET fence = %d WHERE %s", fence, w.is(n))
		}
		items := w.items(1, 2, 3)
		require.ElementsMatch(w, items, Acked(w.run(Settles(w, items...)[name]), items...), name)
	}
}

func nacked(w *world) {
	items := w.leased(1, 2)
	w.run(w.Nack([]sqlbatch.NackItem{{Item: items[0], Delay: time.Hour, Error: "naïve 😀"}, {Item: items[1]}}))
	got := w.get(1)
	require.Equal(w, list("scheduled", items[0].Fence+1, 1, nil, "naïve 😀"), got.of("state", "fence", "attempts", "leased_by", "last_error"))
	require.InDelta(w, w.now()+time.Hour.Milliseconds(), got["due_at"], 30_000)
	require.Equal(w, []byte{2}, w.claim(10))
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(2)[0], Error: "first"}}))
	w.claim(10)
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(2)[0]}}))
	require.Equal(w, list("first", 3), w.get(2).of("last_error", "attempts"), "no error keeps the one before")
}

// A nack clears the attempts that were lapses. A snooze does so too, and counts no other attempt
// either.
func snoozed(w *world) {
	w.leased(1)
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0]}}))
	for lapses := range 3 {
		require.Equal(w, []byte{1}, w.claim(1))
		for range lapses {
			w.expire(1)
			require.Equal(w, []byte{1}, w.claim(1))
		}
		item := w.items(1)[0]
		w.run(w.Snooze([]sqlbatch.NackItem{{Item: item, Delay: time.Hour, Error: "busy"}}))
		got := w.get(1)
		require.Equal(w, list("scheduled", item.Fence+1, 1, nil, "busy"), got.of("state", "fence", "attempts", "leased_by", "last_error"))
		require.InDelta(w, w.now()+time.Hour.Milliseconds(), got["due_at"], 30_000)
		w.shift("chanq_orders.due_at", -2*time.Hour, w.is(1))
	}
	require.Zero(w, ClaimedRows(w, w.run(w.Claim(ClaimOf(1))))[1].Lapses)
}

func released(w *world) {
	w.sendAll(1)
	due := w.get(1)["due_at"].(int64)
	w.claim(10)
	item := w.items(1)[0]
	w.run(w.Release(Releases([]sqlbatch.Item{item})))
	require.Equal(w, list("ready", item.Fence+1, 0, due, nil), w.get(1).of("state", "fence", "attempts", "due_at", "leased_by"))
}

func moved(w *world) {
	row := sqlbatch.Row{ID: ID(1), Priority: 1, Key: "k", Type: "t", Headers: []byte("h"), Body: []byte("b")}
	moved := func(want ...any) {
		w.Helper()
		got := w.get(1)
		require.Equal(w, list(want...), got.of("state", "fence", "last_error"))
		require.GreaterOrEqual(w, got["ended_at"], got["enqueued_at"])
		require.Equal(w, list(1, 1, "k", "t", "h", "b", nil), got.of("priority", "attempts", "dedup_key", "type", "headers", "body", "leased_by"))
	}
	claim := func() sqlbatch.Item {
		w.send(row)
		w.claim(1)
		return w.items(1)[0]
	}
	for range 2 { // the second time an older copy exists
		lease := claim()
		require.Len(w, w.run(w.Archive([]sqlbatch.Item{lease})), 1)
		rows, err := Rows(w.Soon(), w.DB, sqlbatch.Statement{Text: "SELECT outcome FROM chanq_orders__done"})
		require.NoError(w, err)
		require.Equal(w, list(sqlbatch.OutcomeAcked), rows[0])
		require.Equal(w, list(nil, nil), w.get(1).of("cause", "fingerprint"))
		w.shift("chanq_orders__done.ended_at", -time.Second, "1 = 1")
		w.shift("chanq_orders__done.enqueued_at", -time.Second, "1 = 1")
		moved("done", lease.Fence, nil)
	}
	w.exec("DELETE FROM chanq_orders__done")
	for _, text := range []string{"first", "second"} {
		lease := claim()
		deadLetter := sqlbatch.DeadLetterItem{Item: lease, Error: text, Cause: sqlbatch.CauseRejected, Fingerprint: 1<<56 + int64(len(text))}
		require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{deadLetter})), 1)
		moved("dead", lease.Fence+1, text)
		require.Equal(w, list(int64(deadLetter.Cause), deadLetter.Fingerprint), w.get(1).of("cause", "fingerprint"))
	}
}

func extended(w *world) {
	items := w.leased(1)
	end := func() int64 { return w.get(1)["lease_until"].(int64) - w.now() }
	for _, q := range []sqlbatch.Queue{w, w.SkipLocked()} {
		require.Equal(w, items, Items(w.run(q.Extend(Consumer, items, time.Hour)), 1))
		require.InDelta(w, time.Hour.Milliseconds(), end(), 30_000)
		require.Equal(w, items, Items(w.run(q.Extend(Consumer, items, time.Second)), 1))
		require.InDelta(w, time.Hour.Milliseconds(), end(), 30_000, "one that was late")
	}
}

func looked(w *world) {
	w.sendAll(1, 2)
	require.Equal(w, []byte{1}, w.claim(1))
	fence := w.get(1)["fence"].(int64)
	found := Items(w.run(w.Look(ids(1, 2, 3))), 1)
	require.ElementsMatch(w, []sqlbatch.Item{{ID: ID(1), Fence: fence}, {ID: ID(2)}}, found)
	require.Empty(w, w.run(w.Look(ids(3))))
	require.Empty(w, w.run(w.Look(nil)))
}

// bounds tests counts and fences at their limits, which only another program can write.
func bounds(w *world) {
	claim := func() []byte {
		p := ClaimOf(10)
		p.Salt = 1 << sqlbatch.FenceBits
		w.rescue()
		return Numbers(w.run(w.Claim(p)))
	}
	atBounds(w, claim)
}

func orderedBounds(w *world) {
	r := w.reader()
	w.joinAs(other, time.Hour)
	marks := 0
	atBounds(w, func() []byte { // two consumers take over the message in turns
		marks++
		who, mark := [][16]byte{Consumer, other}[marks%2], sqlbatch.MarkItem{Item: w.items(1)[0], SlotFence: r.Slots[0].Fence}
		taken := Numbers(w.run(w.MarkOrdered(who, []sqlbatch.MarkItem{mark})))
		require.Len(w, w.run(w.Extend(who, w.items(1), time.Minute)), 1)
		return taken
	})
}

func atBounds(w *world, claim func() []byte) {
	w.sendAll(1)
	most := strings.NewReplacer("{attempt}", fmt.Sprint(sqlbatch.LastAttempt), "{lapse}", fmt.Sprint(sqlbatch.LastLapse), "{fence}", fmt.Sprint(int64(sqlbatch.LastFence)), "{near}", fmt.Sprint(int64(sqlbatch.LastFence)-1), "{beyond}", fmt.Sprint(int64(sqlbatch.LastFence)+1))
	set := func(values string) error {
		_, err := w.DB.Exec("UPDATE chanq_orders SET " + most.Replace(values))
		return err
	}
	settles := map[string]func(sqlbatch.Item) sqlbatch.Statement{
		"nack":    func(i sqlbatch.Item) sqlbatch.Statement { return w.Nack([]sqlbatch.NackItem{{Item: i}}) },
		"snooze":  func(i sqlbatch.Item) sqlbatch.Statement { return w.Snooze([]sqlbatch.NackItem{{Item: i}}) },
		"release": func(i sqlbatch.Item) sqlbatch.Statement { return w.Release(Releases([]sqlbatch.Item{i})) },
	}
	for name, settle := range settles {
		for _, values := range []string{"attempts = {attempt}, lapses = {lapse}, fence = {fence}", "attempts = 1, lapses = 1, fence = {fence}", "attempts = 0, lapses = 0, fence = {near}"} {
			require.NoError(w, set(values), values)
			require.Equal(w, []byte{1}, claim(), "%s of %s", name, values)
			fences := map[int64]bool{}
			for range 3 { // leases that expire
				fence := w.items(1)[0].Fence
				require.Less(w, fence, int64(sqlbatch.HighFence))
				require.NotContains(w, fences, fence)
				fences[fence] = true
				w.lapse(1)
				require.Equal(w, []byte{1}, claim(), "%s of %s", name, values)
			}
			require.Len(w, w.run(settle(w.items(1)[0])), 1, "%s of %s", name, values)
		}
	}
	for _, values := range []string{"attempts = 0, lapses = 1", "attempts = 3, lapses = 4", "attempts = -1", "attempts = {attempt} + 1", "lapses = -1, attempts = 5", "fence = {beyond}"} {
		require.Error(w, set(values), values)
	}
	require.Equal(w, []byte{1}, claim())
	require.Error(w, set("attempts = 2, lapses = 2"), "the lease is an attempt, too")
}
