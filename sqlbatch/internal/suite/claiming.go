package suite

import (
	"bytes"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var claiming = []test{
	{"AClaimTakesLanesFromTheHighestByDueTime", lanes},
	{"WhatRanOutIsClaimedInItsOldPlace", ranOutInPlace},
	{"AClaimBeginsAtItsHeads", heads},
	{"AClaimBeginsAtTheIDOfItsHead", headsWithIDs},
	{"ARescanFindsWhatLiesBelow", rescan},
	{"APausedQueueYieldsNothing", paused},
	{"AQueueThatIsPausedOrMissingIsNeverDue", neverDue},
	{"NextDueIsTheEarliestOfAllLanes", nextDue},
	{"AFenceIsNeverGivenTwice", fences},
	{"ALapseIsALeaseThatRanOutWithoutASettle", lapses},
	{"AClaimLeavesOutSuspectsAndARescanFindsTheFirst", suspects},
	{"AMarkLeasesOneMessageByItsFence", markOne},
	{"AMarkCountsCrashesAndARepeatedOneNothing", crashes},
	{"AClaimTellsWhatHasExpired", expires},
	{"AClaimLeavesOutLargeBodies", largeBodies},
}

func lanes(w *world) {
	w.send(
		sqlbatch.Row{ID: ID(1), Priority: -1}, sqlbatch.Row{ID: ID(2), Priority: 0}, sqlbatch.Row{ID: ID(3), Priority: 1},
		sqlbatch.Row{ID: ID(4), Priority: 2}, sqlbatch.Row{ID: ID(5), Priority: 2}, sqlbatch.Row{ID: ID(6), Priority: 2, Delay: time.Hour},
		sqlbatch.Row{ID: ID(7), Priority: 0, Key: "k", Type: "t", Headers: []byte("h"), Body: []byte("b")},
	)
	w.shift("chanq_orders.due_at", -time.Second, w.is(5))
	w.shift("chanq_orders.due_at", -time.Second, w.is(7))
	take := func(n int) []byte { return Numbers(w.run(w.Claim(ClaimOf(n)))) }

	require.Equal(w, []byte{5}, take(1))
	require.ElementsMatch(w, []byte{4, 3}, take(2))
	due := w.get(7)["due_at"].(int64)
	row := ClaimedRows(w, w.run(w.Claim(ClaimOf(1))))[7]
	got := w.get(7)
	require.Equal(w, Claimed{7, 0, w.items(7)[0].Fence, 1, 0, 0, got["enqueued_at"].(int64), due, nil, "k", "t", "h", "b", 1}, row)
	require.Equal(w, list("leased", string(Consumer[:])), got.of("state", "leased_by"))
	require.InDelta(w, w.now()+time.Minute.Milliseconds(), got["lease_until"], 30_000)
	require.Equal(w, due, got["due_at"], "its place is kept")
	require.ElementsMatch(w, []byte{2, 1}, take(1000))
	require.Empty(w, take(1000))
}

func ranOutInPlace(w *world) {
	for n := byte(1); n <= 6; n++ {
		w.send(sqlbatch.Row{ID: ID(n), Priority: int8(n % 2)})
		w.shift("chanq_orders.due_at", -time.Duration(10-n)*time.Minute, w.is(n))
	}
	require.Len(w, w.claim(6), 6)
	require.Len(w, w.run(w.Release(Releases(w.items(1, 5, 2, 6)))), 4)
	w.lapse(3, 4)
	require.Equal(w, []byte{1, 3, 5, 2, 4, 6}, w.inState(sqlbatch.Ready, 10))
	require.Equal(w, list(6, 0, 0), w.run(w.Stats(10))[0][:3])
	require.Equal(w, list(2, 0, 0), w.run(w.Stats(2))[0][:3])
	for _, n := range []byte{1, 3, 5, 2, 4, 6} {
		require.Equal(w, []byte{n}, Numbers(w.run(w.Claim(ClaimOf(1)))))
	}
	require.Empty(w, w.run(w.Claim(ClaimOf(1))))
}

// headsWithIDs tests that a claim passes none of the messages before its head that are due at the same time.
func headsWithIDs(w *world) {
	const due = 900_000_000
	send := func() {
		w.exec("DELETE FROM chanq_orders")
		w.sendAll(1, 2, 3, 4, 5)
		w.exec("UPDATE chanq_orders SET due_at = %s", w.at(due))
		w.exec("UPDATE chanq_orders SET due_at = %s WHERE %s", w.at(due+1), w.is(1))
	}
	from := func(at int64, id byte) (p sqlbatch.ClaimParams) {
		p = ClaimOf(10)
		p.Heads[-sqlbatch.PriorityLow] = sqlbatch.Head{Due: 1000 * at, ID: ID(id)}
		return p
	}
	for _, c := range []struct {
		at   int64
		id   byte
		want []byte
	}{
		{due, 0, []byte{1, 2, 3, 4, 5}}, {due, 4, []byte{1, 4, 5}}, {due, 6, []byte{1}},
		{due + 1, 1, []byte{1}}, {due + 1, 2, nil}, {due - 1, 9, []byte{1, 2, 3, 4, 5}},
	} {
		send()
		p := from(c.at, c.id)
		next := w.run(w.NextDue(p.Heads))[0][0]
		require.Equal(w, len(c.want) > 0, next != nil, c)
		require.ElementsMatch(w, c.want, Numbers(w.run(w.Claim(p))), c)
	}
	send()
	w.run(w.Claim(from(due, 4)))
	second := ID(2)
	require.Equal(w, []any{int64(1000 * due), string(second[:])}, []any{w.run(w.Rescan())[2][1], w.run(w.Rescan())[2][8]}, "where the rescan found a message")
}

// heads tests that each lane begins at its own head, which stays behind the clock by the margin.
func heads(w *world) {
	from := func(f ...int64) sqlbatch.ClaimParams {
		p := ClaimOf(10)
		p.Heads = HeadsAt(f...)
		for i := range p.Heads { // the last of all IDs; behind the margin it does not count
			p.Heads[i].ID = [16]byte(bytes.Repeat([]byte{0xFF}, 16))
		}
		return p
	}
	var now, old int64
	for {
		w.exec("DELETE FROM chanq_orders")
		for n := byte(1); n <= 4; n++ { // of each priority from Low up: an old message, and a new one
			w.send(sqlbatch.Row{ID: ID(n), Priority: int8(n) - 2}, sqlbatch.Row{ID: ID(n + 10), Priority: int8(n) - 2})
			w.shift("chanq_orders.due_at", -time.Hour, w.is(n))
		}
		now = w.now()
		old = now - time.Hour.Milliseconds() - 30_000
		w.exec("UPDATE chanq_orders SET due_at = %s WHERE %s OR %s", w.at(now/1000+7200), w.is(14), w.is(13))
		newest := w.get(12)["due_at"].(int64)
		got := Numbers(w.run(w.Claim(from(old, now, now, now))))
		if !slices.Contains(got, 12) && w.now()-newest > sqlbatch.HeadMargin.Milliseconds() {
			continue // the machine was so slow that the message was not new
		}
		require.ElementsMatch(w, []byte{1, 11, 12}, got, "what is newer than the margin counts always")
		break
	}
	require.LessOrEqual(w, w.run(w.NextDue(HeadsAt(now, now, old, now)))[0][0], int64(0))
	require.Greater(w, w.run(w.NextDue(HeadsAt(now, now, now, now)))[0][0], int64(0), "scheduled messages are behind the head")
	far := now + 2*time.Hour.Milliseconds()
	require.Empty(w, w.run(w.Claim(from(far, far, far, far))))
	require.ElementsMatch(w, []byte{2, 3, 4}, Numbers(w.run(w.Claim(from(0, 0, 0, 0)))))
}

func rescan(w *world) {
	in := func() map[int64][]any {
		w.Helper()
		rows := map[int64][]any{}
		for _, row := range w.run(w.Rescan()) {
			rows[row[0].(int64)] = row[1:4]
		}
		return rows
	}
	due := func() any { return w.run(w.DueOrLocked())[0][0] }
	require.Nil(w, due())
	before := w.now()
	for priority, row := range in() {
		require.GreaterOrEqual(w, row[0], before, priority)
		require.Equal(w, list(nil, 0), row[1:], "no message and no consumer")
	}
	require.Len(w, in(), sqlbatch.Priorities)

	w.run(w.Join(sqlbatch.Consumer{ID: ID(1), Name: "a", For: time.Hour}))
	w.run(w.Join(sqlbatch.Consumer{ID: ID(2), Name: "b", For: time.Hour}))
	w.send(
		sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2)}, sqlbatch.Row{ID: ID(3)}, // leased, free, free
		sqlbatch.Row{ID: ID(4), Priority: 1}, sqlbatch.Row{ID: ID(5), Priority: 1, Delay: time.Hour}, // leased, scheduled
		sqlbatch.Row{ID: ID(6), Priority: -1, Delay: time.Hour}, // scheduled
	)
	for n := byte(1); n <= 4; n++ {
		w.shift("chanq_orders.due_at", -time.Duration(10-n)*time.Minute, w.is(n))
	}
	w.run(w.Claim(sqlbatch.ClaimParams{Rows: 2, Lease: time.Minute, Consumer: Consumer, Salt: 1, Inline: sqlbatch.MaxBody}))
	require.Equal(w, []byte{4, 1}, w.inState(sqlbatch.Leased, 10))
	require.LessOrEqual(w, due(), int64(0), "2 and 3 are due")
	rows := in()
	require.Equal(w, w.get(2)["due_at"], rows[0][0], "the first that may be claimed")
	require.LessOrEqual(w, rows[0][1], int64(0))
	require.InDelta(w, w.now(), rows[1][0], 30_000)
	require.InDelta(w, time.Minute.Milliseconds()-15_000, rows[1][1], 15_000, "the end of a lease comes before what is scheduled")
	require.InDelta(w, time.Hour.Milliseconds()-15_000, rows[-1][1], 15_000)
	require.Equal(w, []any{nil, int64(2)}, rows[2][1:])

	w.lapse(1)
	require.Equal(w, w.get(1)["due_at"], in()[0][0], "a message whose lease expired is in its old place")
	w.run(w.Claim(ClaimOf(10)))
	require.Greater(w, due(), int64(0), "what is leased does not count, and what is scheduled is not due")
	w.lapse(1)
	require.LessOrEqual(w, due(), int64(0))
	w.run(w.Pause("someone", "a test"))
	require.Empty(w, w.run(w.Rescan()))
	require.Nil(w, due())
}

func paused(w *world) {
	w.sendAll(1)
	w.run(w.Pause("someone", "a test"))
	require.Empty(w, w.run(w.Claim(ClaimOf(10))))
	row := w.run(w.Version())[0]
	require.EqualValues(w, 1, row[3])
	require.InDelta(w, w.now(), row[15], 60_000)
	require.Equal(w, []any{"someone", "a test"}, row[16:18])
	w.run(w.Resume())
	row = w.run(w.Version())[0]
	require.EqualValues(w, 0, row[3])
	require.Equal(w, []any{nil, nil, nil}, row[15:18])
	require.Len(w, w.run(w.Claim(ClaimOf(10))), 1)
}

func neverDue(w *world) {
	w.sendAll(1)
	require.LessOrEqual(w, w.run(w.NextDue(sqlbatch.Heads{}))[0][0], int64(0))
	w.run(w.Pause("someone", "a test"))
	require.Equal(w, [][]any{{nil}}, w.run(w.NextDue(sqlbatch.Heads{})))
	w.run(w.Resume())
	require.NotNil(w, w.run(w.NextDue(sqlbatch.Heads{}))[0][0])
}

func nextDue(w *world) {
	require.Equal(w, [][]any{{nil}}, w.run(w.NextDue(sqlbatch.Heads{})))
	w.send(sqlbatch.Row{ID: ID(1), Priority: 2, Delay: 2 * time.Hour}, sqlbatch.Row{ID: ID(2), Priority: -1, Delay: time.Hour})
	in := func() int64 { return w.run(w.NextDue(sqlbatch.Heads{}))[0][0].(int64) }
	require.InDelta(w, time.Hour.Milliseconds()-30_000, in(), 30_000)
	w.sendAll(3)
	require.LessOrEqual(w, in(), int64(0))
	require.Equal(w, []byte{3}, w.claim(1))
	require.InDelta(w, time.Hour.Milliseconds()-30_000, in(), 30_000, "leased messages are before a head")
}

func fences(w *world) {
	claim := func(salt int64) int64 {
		p := ClaimOf(1)
		p.Salt = salt
		return ClaimedRows(w, w.run(w.Claim(p)))[1].Fence
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

func lapses(w *world) {
	claim := func() int64 {
		w.Helper()
		rows := ClaimedRows(w, w.run(w.Claim(ClaimOf(1))))
		require.Len(w, rows, 1)
		return rows[1].Lapses
	}
	w.sendAll(1)
	require.EqualValues(w, 0, claim())
	w.lapse(1)
	require.EqualValues(w, 1, claim())
	w.run(w.Release(Releases(w.items(1))))
	require.EqualValues(w, 1, claim(), "a release says nothing of it")
	w.lapse(1)
	require.EqualValues(w, 2, w.mark(1, 1).Lapses)
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0]}}))
	require.EqualValues(w, 0, claim(), "it came to an end")
}

func suspects(w *world) {
	first := func() []any {
		w.Helper()
		for _, row := range w.run(w.Rescan()) {
			if row[0] == int64(0) {
				return row
			}
		}
		return nil
	}
	w.leased(1, 2, 3, 4)
	for n := byte(1); n <= 4; n++ {
		w.shift("chanq_orders.due_at", -time.Duration(10-n)*time.Minute, w.is(n))
	}
	w.exec("UPDATE chanq_orders SET lapses = 1, attempts = 2 WHERE %s OR %s", w.is(2), w.is(4))
	w.lapse(1, 2)
	w.run(w.Release(Releases(w.items(3, 4))))
	w.exec("UPDATE chanq_orders SET lapses = 2, attempts = 2, crashes = 1 WHERE %s", w.is(3))

	ID1, ID2 := ID(1), ID(2)
	require.Equal(w, []any{nil, nil, nil, nil, string(ID1[:])}, first()[4:], "the first one is no suspect")
	rows := ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))
	require.Len(w, rows, 2, "of 2 it would be the second expired lease, 3 has two")
	require.Equal(w, []int64{1, 1}, []int64{rows[1].Lapses, rows[4].Lapses})

	found := first()
	require.Equal(w, []any{string(ID2[:]), w.items(2)[0].Fence, int64(0), int64(0), nil}, found[4:])
	require.GreaterOrEqual(w, found[1], w.get(2)["due_at"].(int64)+5*time.Minute.Milliseconds(), "a claim would find nothing")
	require.Greater(w, found[2], int64(0))
	require.Nil(w, w.run(w.NextDue(sqlbatch.Heads{}))[0][0])
	require.LessOrEqual(w, w.run(w.DueOrLocked())[0][0], int64(0), "there is something to do")

	w.lapse(1)
	require.Equal(w, string(ID1[:]), first()[4], "of two suspects the first")
	require.Empty(w, w.claim(10))
	w.exec("UPDATE chanq_orders SET lapses = 0 WHERE %s", w.is(1))
	require.Equal(w, w.get(1)["due_at"], first()[1])
	require.Equal(w, []any{nil, nil, nil, nil, string(ID1[:])}, first()[4:], "one that may be claimed comes before it")

	w.claim(10)
	require.Equal(w, string(ID2[:]), first()[4])
	w.exec("UPDATE chanq_orders SET expires_at = due_at WHERE %s", w.is(2))
	require.Equal(w, []any{nil, nil, nil, nil, string(ID2[:])}, first()[4:], "one that has expired is no suspect")
	require.LessOrEqual(w, w.run(w.NextDue(sqlbatch.Heads{}))[0][0], int64(0))
	rows = ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))
	require.Len(w, rows, 1)
	require.EqualValues(w, 1, rows[2].Expired)
}

func markOne(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), Key: "k", Type: "t", Headers: []byte("h"), Body: []byte("body")}, sqlbatch.Row{ID: ID(2)}, sqlbatch.Row{ID: ID(3), Delay: time.Hour})
	of := func(n byte) sqlbatch.MarkParams {
		return sqlbatch.MarkParams{Item: w.items(n)[0], Lease: time.Minute, Consumer: Consumer, Salt: 1, Alone: sqlbatch.OnlySuspect}
	}
	wrong := of(1)
	wrong.Fence++
	require.Empty(w, w.run(w.Mark(wrong)))
	require.Empty(w, w.run(w.Mark(of(3))), "it is not due")
	w.run(w.Pause("someone", "a test"))
	require.Empty(w, w.run(w.Mark(of(1))))
	w.run(w.Resume())

	before := of(1)
	row := ClaimedRows(w, w.run(w.Mark(before)))[1]
	got := w.get(1)
	require.Equal(w, Claimed{1, 0, w.items(1)[0].Fence, 1, 0, 0, got["enqueued_at"].(int64), got["due_at"].(int64), nil, nil, nil, nil, nil, 4}, row)
	require.Greater(w, row.Fence, before.Fence)
	require.Equal(w, list("leased", string(Consumer[:])), got.of("state", "leased_by"))
	require.InDelta(w, w.now()+time.Minute.Milliseconds(), got["lease_until"], 30_000)
	item := w.items(1)[0]
	require.Equal(w, [][]any{list("k", "t", "h", "body")}, w.run(w.Contents(item)))
	item.Fence++
	require.Empty(w, w.run(w.Contents(item)))

	other := of(1)
	other.Consumer = ID(9)
	require.Empty(w, w.run(w.Mark(other)), "it is leased")
	other.Again = true
	require.Empty(w, w.run(w.Mark(other)), "by another consumer")
	require.Len(w, w.run(w.Ack(w.items(1))), 1)
	require.Empty(w, w.run(w.Mark(before)), "it is gone")
	require.Equal(w, []byte{2}, w.claim(10))
}

func crashes(w *world) {
	w.sendAll(1)
	count := func() (all []int64) {
		w.Helper()
		rows, err := w.DB.Query("SELECT attempts, lapses, crashes, alone FROM chanq_orders")
		require.NoError(w, err)
		defer rows.Close()
		require.True(w, rows.Next())
		all = make([]int64, 4)
		require.NoError(w, rows.Scan(&all[0], &all[1], &all[2], &all[3]))
		return all
	}
	mark := func(alone sqlbatch.Alone, again bool) {
		w.Helper()
		before := w.items(1)[0].Fence
		rows := ClaimedRows(w, w.run(w.Mark(sqlbatch.MarkParams{Item: w.items(1)[0], Lease: time.Minute, Consumer: Consumer, Salt: 1, Alone: alone, Again: again})))
		require.Len(w, rows, 1)
		require.Greater(w, rows[1].Fence, before)
	}
	mark(sqlbatch.NotAlone, false)
	require.Equal(w, []int64{1, 0, 0, 0}, count())
	w.lapse(1)
	mark(sqlbatch.OnlySuspect, false)
	require.Equal(w, []int64{2, 1, 0, 1}, count(), "its holder had not read it")
	mark(sqlbatch.OnlyMessage, true)
	require.Equal(w, []int64{2, 1, 0, 2}, count(), "by the holder itself")
	w.lapse(1)
	mark(sqlbatch.OnlyMessage, true)
	require.Equal(w, []int64{2, 1, 0, 2}, count(), "which has not died, whatever its lease")
	w.lapse(1)
	mark(sqlbatch.OnlySuspect, false)
	require.Equal(w, []int64{3, 2, 1, 1}, count())
	require.Len(w, w.run(w.Release(Releases(w.items(1)))), 1)
	require.Equal(w, []int64{2, 2, 1, 0}, count())
	mark(sqlbatch.OnlyMessage, true)
	require.Equal(w, []int64{3, 2, 1, 2}, count())
	w.lapse(1)
	mark(sqlbatch.OnlyMessage, false)
	require.Equal(w, []int64{4, 3, 2, 2}, count())
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0]}})), 1)
	require.Equal(w, []int64{1, 0, 0, 0}, count())

	w.exec("UPDATE chanq_orders SET lapses = 32767, crashes = 32767, attempts = %d, alone = 2, leased_by = NULL", sqlbatch.LastAttempt-1)
	mark(sqlbatch.OnlyMessage, false)
	w.lapse(1)
	mark(sqlbatch.OnlyMessage, false)
	require.Equal(w, []int64{sqlbatch.LastAttempt, sqlbatch.LastLapse, sqlbatch.LastLapse, 2}, count(), "the counts stop")
}

func expires(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), TTL: time.Hour}, sqlbatch.Row{ID: ID(2)}, sqlbatch.Row{ID: ID(3), TTL: time.Millisecond})
	sent := w.get(1)["enqueued_at"].(int64)
	require.Equal(w, sent+time.Hour.Milliseconds(), w.get(1)["expires_at"])
	require.Nil(w, w.get(2)["expires_at"])
	require.Equal(w, sent+1, w.get(3)["expires_at"])
	w.shift("chanq_orders.expires_at", -time.Minute, w.is(3))
	rows := ClaimedRows(w, w.run(w.Claim(ClaimOf(10))))
	require.Equal(w, []int64{0, 0, 1}, []int64{rows[1].Expired, rows[2].Expired, rows[3].Expired})
	for n, row := range rows {
		require.Equal(w, w.get(n)["expires_at"], row.ExpiresAt)
	}

	items := w.items(2, 3)
	w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: items[1], Error: "expired", Uncounted: true}, {Item: items[0]}}))
	require.Equal(w, list("dead", 0, "expired", nil), w.get(3).of("state", "attempts", "last_error", "expires_at"), "that attempt was not delivered")
	require.EqualValues(w, 1, w.get(2)["attempts"])
	require.Len(w, w.run(w.Redrive(0, ids(3), sqlbatch.Window{})), 1)
	require.Nil(w, w.get(3)["expires_at"])
}

func largeBodies(w *world) {
	w.send(sqlbatch.Row{ID: ID(1), Key: "k", Type: "t", Headers: []byte("h"), Body: []byte("12345")}, sqlbatch.Row{ID: ID(2), Body: []byte("123456")})
	p := ClaimOf(2)
	p.Inline = 5
	rows := ClaimedRows(w, w.run(w.Claim(p)))
	require.Equal(w, list("k", "t", "h", "12345"), []any{rows[1].Key, rows[1].Type, rows[1].Headers, rows[1].Body})
	require.Equal(w, []any{nil, nil, nil, nil}, []any{rows[2].Key, rows[2].Type, rows[2].Headers, rows[2].Body})
	require.Equal(w, []int64{5, 6}, []int64{rows[1].Size, rows[2].Size})
	require.Equal(w, [][]any{list(nil, nil, nil, "123456")}, w.run(w.Contents(w.items(2)[0])))
	w.lapse(1)
	p.Inline = -1
	rows = ClaimedRows(w, w.run(w.Claim(p)))
	require.Equal(w, []any{nil, nil, nil, nil}, []any{rows[1].Key, rows[1].Type, rows[1].Headers, rows[1].Body})
	require.EqualValues(w, 2, rows[1].Attempts)
	require.Equal(w, list("k", "t", "h", "12345"), w.get(1).of("dedup_key", "type", "headers", "body"))
}
