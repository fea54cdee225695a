package suite

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var claiming = []test{
	{"AClaimTakesLanesFromTheHighestByDueTime", inOrder(lanes)},
	{"WhatRanOutIsClaimedFirstInEachPriority", inOrder(ranOutFirst)},
	{"APausedQueueYieldsNothing", inOrder(paused)},
	{"AQueueThatIsPausedOrMissingIsNeverDue", neverDue},
	{"NextDueIsTheEarliestOfAllLanes", nextDue},
	{"AFenceIsNeverGivenTwice", fences},
	{"ALapseIsALeaseThatRanOutWithoutASettle", inOrder(lapses)},
	{"AClaimLeavesOutSuspects", inOrder(suspects)},
	{"AClaimTellsWhatHasExpired", expires},
	{"ABlindClaimReturnsNoContents", inOrder(blind)},
}

// claimer claims n messages, suspects too.
type claimer func(n int) sqlbatch.ClaimParams

// inOrder runs a test with both orders: of one claimer they are the same.
func inOrder(do func(*world, claimer)) func(*world) {
	return func(w *world) {
		for _, order := range []sqlbatch.Order{sqlbatch.FIFO, sqlbatch.OrderAny} {
			w.exec("DELETE FROM chanq_orders")
			do(w, func(n int) sqlbatch.ClaimParams {
				p := claimOf(n)
				p.Order = order
				return p
			})
		}
	}
}

func lanes(w *world, claim claimer) {
	w.send(
		sqlbatch.Row{ID: id(1), Priority: -1}, sqlbatch.Row{ID: id(2), Priority: 0}, sqlbatch.Row{ID: id(3), Priority: 1},
		sqlbatch.Row{ID: id(4), Priority: 2}, sqlbatch.Row{ID: id(5), Priority: 2}, sqlbatch.Row{ID: id(6), Priority: 2, Delay: time.Hour},
		sqlbatch.Row{ID: id(7), Priority: 0, Key: "k", Headers: []byte("h"), Body: []byte("b")},
	)
	w.shift("chanq_orders.visible_at", -time.Second, w.is(5))
	w.shift("chanq_orders.visible_at", -time.Second, w.is(7))
	take := func(n int) []byte { return w.numbers(w.run(w.Claim(claim(n)))) }

	require.Equal(w, []byte{5}, take(1))
	require.ElementsMatch(w, []byte{4, 3}, take(2))
	due := w.get(7)["due_at"].(int64)
	row := w.claimed(claim(1))[7]
	got := w.get(7)
	require.Equal(w, claimed{7, 0, w.items(7)[0].Fence, 1, 0, 0, got["enqueued_at"].(int64), due, nil, "k", "h", "b"}, row)
	require.Equal(w, list("leased", string(member[:])), got.of("state", "leased_by"))
	require.InDelta(w, w.now()+time.Minute.Milliseconds(), got["due_at"], 30_000)
	require.ElementsMatch(w, []byte{2, 1}, take(1000))
	require.Empty(w, take(1000))
}

func ranOutFirst(w *world, claim claimer) {
	w.send(sqlbatch.Row{ID: id(3)}, sqlbatch.Row{ID: id(1), Priority: 1})
	require.Len(w, w.claim(2), 2)
	w.lapse(1, 3)
	w.send(sqlbatch.Row{ID: id(4)}, sqlbatch.Row{ID: id(2), Priority: 1})
	w.shift("chanq_orders.visible_at", -time.Hour, "leased_by IS NULL")
	require.Equal(w, []byte{1, 2, 3, 4}, w.peek(sqlbatch.Ready, 10))
	require.Equal(w, list(4, 0, 0), w.run(w.Stats(10))[0][:3])
	require.Equal(w, list(2, 0, 0), w.run(w.Stats(2))[0][:3])
	for n := byte(1); n <= 4; n++ {
		require.Equal(w, []byte{n}, w.numbers(w.run(w.Claim(claim(1)))))
	}
	require.Empty(w, w.run(w.Claim(claim(1))))
}

func paused(w *world, claim claimer) {
	w.sendAll(1)
	w.run(w.Pause())
	require.Empty(w, w.run(w.Claim(claim(10))))
	require.Equal(w, [][]any{list(sqlbatch.Version, 1)}, w.run(w.Version()))
	w.run(w.Resume())
	require.Len(w, w.run(w.Claim(claim(10))), 1)
}

func neverDue(w *world) {
	w.sendAll(1)
	require.LessOrEqual(w, w.run(w.NextDue())[0][0], int64(0))
	w.run(w.Pause())
	require.Equal(w, [][]any{{nil}}, w.run(w.NextDue()))
	w.run(w.Resume())
	require.NotNil(w, w.run(w.NextDue())[0][0])
}

func nextDue(w *world) {
	require.Equal(w, [][]any{{nil}}, w.run(w.NextDue()))
	w.send(sqlbatch.Row{ID: id(1), Priority: 2, Delay: 2 * time.Hour}, sqlbatch.Row{ID: id(2), Priority: -1, Delay: time.Hour})
	in := func() int64 { return w.run(w.NextDue())[0][0].(int64) }
	require.InDelta(w, time.Hour.Milliseconds()-30_000, in(), 30_000)
	w.sendAll(3)
	require.LessOrEqual(w, in(), int64(0))
	require.Equal(w, []byte{3}, w.claim(1))
	require.InDelta(w, time.Minute.Milliseconds()-30_000, in(), 30_000, "a lease ends before the others are due")
}

func fences(w *world) {
	claim := func(salt int64) int64 {
		p := claimOf(1)
		p.Salt = salt
		return w.claimed(p)[1].Fence
	}
	w.sendAll(1)
	before := w.now()
	first := claim(5)
	after := w.now()
	require.GreaterOrEqual(w, first, before<<sqlbatch.FenceBits+5)
	require.LessOrEqual(w, first, after<<sqlbatch.FenceBits+5)

	w.lapse(1)
	second := claim(1)
	require.Greater(w, second, first)
	require.Len(w, w.run(w.Ack(w.items(1))), 1)
	w.sendAll(1)
	require.Greater(w, claim(1<<sqlbatch.FenceBits), second, "of an id that is sent again")

	future := (w.now() + time.Hour.Milliseconds()) << sqlbatch.FenceBits
	w.exec("UPDATE chanq_orders SET fence = %d", future)
	w.lapse(1)
	require.Equal(w, future+3, claim(3), "of a clock that was set back")
}

func lapses(w *world, claim claimer) {
	lapses := func() int64 {
		w.Helper()
		rows := w.claimed(claim(1))
		require.Len(w, rows, 1)
		return rows[1].Lapses
	}
	w.sendAll(1)
	require.EqualValues(w, 0, lapses())
	w.lapse(1)
	require.EqualValues(w, 1, lapses())
	w.lapse(1)
	require.EqualValues(w, 2, lapses())
	w.run(w.Release([]sqlbatch.ReleaseItem{{Item: w.items(1)[0]}}))
	require.EqualValues(w, 2, lapses(), "a release says nothing of it")
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0]}}))
	require.EqualValues(w, 0, lapses(), "it came to an end")
	w.exec("UPDATE chanq_orders SET lapses = 32767")
	w.lapse(1)
	require.GreaterOrEqual(w, lapses(), int64(32767), "the count stops, or has room")
}

func suspects(w *world, claim claimer) {
	w.leased(1, 2, 3, 4)
	w.exec("UPDATE chanq_orders SET lapses = 1 WHERE %s OR %s", w.is(2), w.is(4))
	w.lapse(1, 2)
	items := w.items(3, 4)
	w.run(w.Release([]sqlbatch.ReleaseItem{{Item: items[0]}, {Item: items[1]}}))
	w.exec("UPDATE chanq_orders SET lapses = 2 WHERE %s", w.is(3))

	p := claim(10)
	p.Suspects, p.Lapses = false, 2
	rows := w.claimed(p)
	require.Len(w, rows, 2, "of 2 it would be the second lapse, 3 has two")
	require.Equal(w, []int64{1, 1}, []int64{rows[1].Lapses, rows[4].Lapses})
	p.Suspects = true
	rows = w.claimed(p)
	require.Len(w, rows, 2)
	require.Equal(w, []int64{2, 2}, []int64{rows[2].Lapses, rows[3].Lapses})
}

func expires(w *world) {
	w.send(sqlbatch.Row{ID: id(1), TTL: time.Hour}, sqlbatch.Row{ID: id(2)}, sqlbatch.Row{ID: id(3), TTL: time.Millisecond})
	sent := w.get(1)["enqueued_at"].(int64)
	require.Equal(w, sent+time.Hour.Milliseconds(), w.get(1)["expires_at"])
	require.Nil(w, w.get(2)["expires_at"])
	require.Equal(w, sent+1, w.get(3)["expires_at"])
	w.shift("chanq_orders.expires_at", -time.Minute, w.is(3))
	rows := w.claimed(claimOf(10))
	require.Equal(w, []int64{0, 0, 1}, []int64{rows[1].Expired, rows[2].Expired, rows[3].Expired})
	for n, row := range rows {
		require.Equal(w, w.get(n)["expires_at"], row.ExpiresAt)
	}

	items := w.items(2, 3)
	w.run(w.Bury([]sqlbatch.BuryItem{{Item: items[1], Error: "expired", Uncounted: true}, {Item: items[0]}}))
	require.Equal(w, list("dead", 0, "expired", nil), w.get(3).of("state", "attempts", "last_error", "expires_at"), "nobody had that attempt")
	require.EqualValues(w, 1, w.get(2)["attempts"])
	require.Len(w, w.run(w.Redrive(0, ids(3), sqlbatch.Window{})), 1)
	require.Nil(w, w.get(3)["expires_at"])
}

func blind(w *world, claim claimer) {
	w.send(sqlbatch.Row{ID: id(1), Key: "k", Headers: []byte("h"), Body: []byte("b")})
	p := claim(1)
	p.Blind = true
	row := w.claimed(p)[1]
	require.EqualValues(w, 1, row.Attempts)
	require.Equal(w, []any{nil, nil, nil}, []any{row.Key, row.Headers, row.Body})
	require.Equal(w, list("k", "h", "b"), w.get(1).of("dedup_key", "headers", "body"))
	w.lapse(1)
	row = w.claimed(claim(1))[1]
	require.Equal(w, list("k", "h", "b"), []any{row.Key, row.Headers, row.Body})
}
