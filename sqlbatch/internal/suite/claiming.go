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
	{"ARescueEndsExpiredLeasesAndScattersTheirMessages", rescues},
	{"ARescanFindsTheFirstExpiredLease", rescanForLost},
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
	require.ElementsMatch(w, []byte{3, 4}, w.rescue())
	require.Equal(w, []byte{1, 3, 5, 2, 4, 6}, w.inState(sqlbatch.Ready, 10))
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
	require.Equal(w, []any{int64(1000 * due), string(second[:])}, []any{w.run(w.Rescan())[2][1], w.run(w.Rescan())[2][4]}, "where the rescan found a message")
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

	w.expire(1)
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

	w.expire(1)
	second := claim(1)
	require.Greater(w, second, first)
	require.Len(w, w.run(w.Ack(w.items(1))), 1)
	w.sendAll(1)
	require.Greater(w, claim(1<<sqlbatch.FenceBits), second, "of an id that is sent again")

	future := (w.now() + time.Hour.Milliseconds()) << sqlbatch.FenceBits
	w.exec("UPDATE chanq_orders SET fence = %d", future)
	w.expire(1)
	require.Equal(w, future+4, claim(3), "of a clock that was set back")
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
	require.Empty(w, w.claim(1), "before its rescue it is leased")
	require.Nil(w, w.run(w.NextDue(sqlbatch.Heads{}))[0][0])
	require.LessOrEqual(w, w.run(w.DueOrLocked())[0][0], int64(0), "there is something to do")
	require.Equal(w, []byte{1}, w.rescue())
	require.EqualValues(w, 1, claim())
	w.run(w.Release(Releases(w.items(1))))
	require.EqualValues(w, 1, claim(), "a release says nothing of it")
	w.expire(1)
	require.EqualValues(w, 2, claim())
	w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0]}}))
	require.EqualValues(w, 0, claim(), "it came to an end")
	w.exec("UPDATE chanq_orders SET lapses = 32767, attempts = %d", sqlbatch.LastAttempt)
	w.exec("UPDATE chanq_orders SET fence = %d", int64(sqlbatch.LastFence))
	w.lapse(1)
	require.Equal(w, []byte{1}, w.rescue(), "whatever fence another program wrote")
	require.EqualValues(w, sqlbatch.LastLapse, claim(), "the counts stop")
	require.EqualValues(w, sqlbatch.LastAttempt, w.get(1)["attempts"])
}

// rescues tests which leases a rescue ends, and what becomes of their messages.
func rescues(w *world) {
	w.send(
		sqlbatch.Row{ID: ID(1)}, sqlbatch.Row{ID: ID(2)}, sqlbatch.Row{ID: ID(3)}, sqlbatch.Row{ID: ID(4)}, sqlbatch.Row{ID: ID(5), Priority: 1},
	)
	for n := byte(1); n <= 5; n++ {
		w.shift("chanq_orders.due_at", -time.Duration(10-n)*time.Minute, w.is(n))
	}
	require.Len(w, w.claim(5), 5)
	w.exec("UPDATE chanq_orders SET lapses = 1, attempts = 2 WHERE %s", w.is(4))
	w.lapse(1, 2, 4, 5)
	held := w.items(2)[0]
	due := map[byte]int64{}
	for n := byte(1); n <= 5; n++ {
		due[n] = w.get(n)["due_at"].(int64)
	}
	from := sqlbatch.Head{Due: due[1], ID: ID(1)}
	from.ID[15]++
	before := w.now()
	rescued := map[byte][]any{}
	for _, row := range w.run(w.Rescue(sqlbatch.RescueParams{From: from, MaxCrashes: 8})) {
		rescued[IDOf(row[0])[0]] = row[1:]
	}
	require.Len(w, rescued, 2, "1 is before the place, 3 has time left, and 5 has another priority")
	require.Equal(w, list(0, due[2]), rescued[2], "the first expired lease delays nothing")
	require.Equal(w, list("ready", nil, 1, held.Fence+1), w.get(2).of("state", "leased_by", "attempts", "fence"))
	require.Empty(w, w.run(w.Ack([]sqlbatch.Item{held})))
	delayed := rescued[4][1].(int64)
	require.Equal(w, delayed, w.get(4)["due_at"])
	require.GreaterOrEqual(w, delayed, before, "the second does")
	require.Less(w, delayed, w.now()+time.Minute.Milliseconds())
	require.Empty(w, w.run(w.Rescue(sqlbatch.RescueParams{From: from, MaxCrashes: 8})))
	require.Equal(w, []byte{5}, Numbers(w.run(w.Rescue(sqlbatch.RescueParams{Priority: 1, MaxCrashes: 8}))))

	// The longest delays, of many messages: they are spread, and end with MaxCrashes.
	w.exec("DELETE FROM chanq_orders")
	for lapses, most := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 6: 32 * time.Minute, 7: time.Hour, 20: time.Hour} {
		sooner, later := 0, 0
		for n := byte(1); n <= 40; n++ {
			w.sendAll(n)
		}
		require.Len(w, w.claim(40), 40)
		w.exec("UPDATE chanq_orders SET lapses = %d, attempts = 30, lease_until = %s", lapses, w.at(1))
		now := w.now()
		for _, row := range w.run(w.Rescue(sqlbatch.RescueParams{MaxCrashes: 1000})) {
			after := time.Duration(row[2].(int64)-now) * time.Millisecond
			require.Less(w, after, most+30*time.Second)
			if after < most/2 {
				sooner++
			} else {
				later++
			}
		}
		require.Greater(w, sooner, 5, lapses)
		require.Greater(w, later, 5, lapses)
		w.exec("UPDATE chanq_orders SET due_at = %s", w.at(1000))
		require.Len(w, w.claim(40), 40)
		w.exec("UPDATE chanq_orders SET lapses = %d, attempts = 30, lease_until = %s", lapses, w.at(1))
		for _, row := range w.run(w.Rescue(sqlbatch.RescueParams{MaxCrashes: lapses + 1})) {
			require.EqualValues(w, 1000_000, row[2], "it is to be dead-lettered")
		}
		w.exec("DELETE FROM chanq_orders")
	}
}

// rescanForLost tests that a rescan finds the first expired lease, and passes a limited number of free messages.
func rescanForLost(w *world) {
	lost := func() any {
		w.Helper()
		row := w.run(w.Rescan())[2]
		if row[7] == nil {
			require.Nil(w, row[6])
			return nil
		}
		n := IDOf(row[7])[0]
		require.Equal(w, w.get(n)["due_at"], row[6])
		return n
	}
	w.leased(1, 2, 3, 4, 5)
	for n := byte(1); n <= 5; n++ {
		w.shift("chanq_orders.due_at", -time.Duration(10-n)*time.Minute, w.is(n))
	}
	require.Nil(w, lost())
	w.lapse(2, 4)
	require.Equal(w, byte(2), lost())
	require.Equal(w, []byte{2, 4}, w.rescue())
	require.Nil(w, lost())
	require.EqualValues(w, 1, w.run(w.Rescan())[2][5], "the lapses of the first message")
	w.lapse(3, 5)
	require.Equal(w, byte(3), lost(), "2 is free: another transaction might have locked it")
	for n := range byte(sqlbatch.PassedRows) {
		w.sendAll(100 + n)
		w.shift("chanq_orders.due_at", -time.Hour, w.is(100+n))
	}
	require.Nil(w, lost(), "too many free messages are before it")
	w.exec("DELETE FROM chanq_orders WHERE %s", w.is(100))
	require.Equal(w, byte(3), lost())
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
	w.expire(1)
	p.Inline = -1
	rows = ClaimedRows(w, w.run(w.Claim(p)))
	require.Equal(w, []any{nil, nil, nil, nil}, []any{rows[1].Key, rows[1].Type, rows[1].Headers, rows[1].Body})
	require.EqualValues(w, 2, rows[1].Attempts)
	require.Equal(w, list("k", "t", "h", "12345"), w.get(1).of("dedup_key", "type", "headers", "body"))
}
