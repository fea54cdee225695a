package suite

import (
	"encoding/hex"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// Slots are how many the ordered queue of these tests has.
const slots = 4

// Ordered are the names of an ordered queue.
var Ordered = sqlbatch.Names{Queue: "orders", Slots: slots}

// HasOrdered: the dialect knows ordered queues.
func HasOrdered(d sqlbatch.Dialect) bool { return d.Queue(Ordered).Slots(nil).Text != "" }

const (
	end  = math.MaxInt64
	most = 1000
)

var (
	other  = [16]byte{0xB0, 15: 0x0B} // another member
	nobody = [16]byte{0xC0, 15: 0x0C} // who never joined
)

// line sends messages of a key to a slot by one statement.
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
	w.run(w.Join(sqlbatch.Member{ID: who, Name: nameOf(who), For: d}))
}

// fences are slots and their fences, as a statement returned them.
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

// owner joins, and owns all slots.
func (w *world) owner() *sqlbatch.SlotClaim {
	w.Helper()
	w.joinAs(Member, time.Hour)
	return w.claimOf(w.take(Member, 0, 1, 2, 3))
}

// ownedOf names the slots of parts.
func ownedOf(parts []sqlbatch.SlotPart) (slots []sqlbatch.OwnedSlot) {
	for _, p := range parts {
		slots = append(slots, sqlbatch.OwnedSlot{Slot: p.Slot, Fence: p.Fence})
	}
	return slots
}

// claimOf is a claim from these slots, in order.
func (w *world) claimOf(fences map[int]int64) *sqlbatch.SlotClaim {
	c := &sqlbatch.SlotClaim{Rows: most, Lease: time.Minute, Member: Member, Lapses: math.MaxInt32}
	for slot := range slots {
		if fence, ok := fences[slot]; ok {
			c.Parts = append(c.Parts, sqlbatch.SlotPart{Slot: slot, Fence: fence, Limit: most})
		}
	}
	return c
}

// found is what a claim from slots returned.
type found struct {
	leased []byte // by seq, slot by slot
	rows   map[byte][]any
	seqs   map[byte]int64
	past   map[byte]int64 // in how many ms
	ends   map[int]int64
}

// salts gives each claim another salt. Worlds share it.
var salts atomic.Int64

func (w *world) claimSlots(c *sqlbatch.SlotClaim) *found {
	w.Helper()
	c.Salt = salts.Add(1)
	f := &found{rows: map[byte][]any{}, seqs: map[byte]int64{}, past: map[byte]int64{}, ends: map[int]int64{}}
	for _, row := range w.run(w.ClaimSlots(*c)) {
		require.Len(w, row, 16)
		slot, seq := int(row[12].(int64)), row[13].(int64)
		if row[0] == nil {
			require.NotContains(w, f.ends, slot)
			f.ends[slot] = seq
			continue
		}
		n := row[0].(string)[0]
		require.NotContains(w, f.seqs, n, "twice")
		f.seqs[n], f.rows[n] = seq, row
		if row[15] != nil {
			f.past[n] = row[15].(int64)
			require.Equal(w, []any{nil, nil, nil, nil}, row[8:12], "content of what is not leased")
			continue
		}
		f.leased = append(f.leased, n)
	}
	slices.SortFunc(f.leased, func(a, b byte) int {
		if x, y := f.rows[a][12].(int64), f.rows[b][12].(int64); x != y {
			return int(x - y)
		}
		return int(f.seqs[a] - f.seqs[b])
	})
	return f
}

var ordered = []test{
	{"AnOrderedQueueIsToldFromAPlainOne", kindIsKnown},
	{"AClaimFindsTheMessagesOfASlotInTheOrderOfSends", slotsAreInOrder},
	{"ALeaseFromASlotHasAllThatAClaimReturns", slotLeases},
	{"AClaimReadsBehindItsMarks", marks},
	{"AnEndTellsHowFarASlotWasSeen", slotEnds},
	{"WhatIsWalkedPastIsTold", walkedPast},
	{"OwnLeasesArePassedOver", ownLeases},
	{"NobodyClaimsFromASlotThatIsNotHis", notHisSlot},
	{"ALeaseEndsWithTheMembership", leasesEndWithMembers},
	{"SlotsAreTakenFromWhoIsGone", slotsAreTaken},
	{"SlotsAreGivenByTheirFence", slotsAreGiven},
	{"SlotsTellTheirOwners", slotsTell},
	{"SlotsTellWhenSomethingIsDue", slotsDue},
	{"WhatIsSentWithKeysHasTheOrderOfItsRows", keyedRowsKeepTheirOrder},
	{"NumbersNeverGoBack", numbersGrow},
	{"AnyProgramMaySendToAnOrderedQueue", anyProgramSends},
	{"ABuryAsksForNoLease", buriesWithoutALease},
	{"WhatIsAtTheBoundsOfTheTablesIsClaimedAndSettled", orderedBounds},
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
	require.Equal(w, [][]any{list(sqlbatch.Version, 0, slots, 0, 0, 0, "")}, w.run(w.Version()))
	held := Ordered
	held.Holds = true
	w.run(w.Engine.Dialect.Queue(held).Record(sqlbatch.Version))
	require.Equal(w, [][]any{list(sqlbatch.Version, 0, slots, 1, 0, 0, "")}, w.run(w.Version()))
}

func slotsAreInOrder(w *world) {
	c := w.owner()
	w.line(1, "a", 9, 2)
	w.line(2, "b", 8)
	w.line(1, "c", 1, 7)
	w.line(1, "a", 3)
	f := w.claimSlots(c)
	require.Equal(w, []byte{9, 2, 1, 7, 3, 8}, f.leased)
	require.Empty(w, f.past)
	require.Equal(w, map[int]int64{0: end, 1: end, 2: end, 3: end}, f.ends)
	for n, row := range f.rows {
		require.Equal(w, []any{map[byte]int64{8: 2}[n] + map[bool]int64{true: 1}[n != 8], f.seqs[n]}, row[12:14])
	}
	require.Empty(w, w.claimSlots(c).leased, "they are leased")
}

func slotLeases(w *world) {
	c := w.owner()
	w.send(sqlbatch.Row{ID: ID(1), Key: "k1", OrderKey: "né", Slot: 3, TTL: time.Hour, Headers: []byte("h"), Body: []byte("b")}, sqlbatch.Row{ID: ID(2)})
	f := w.claimSlots(c)
	require.Equal(w, []byte{2, 1}, f.leased)
	one, two := f.rows[1], f.rows[2]
	item := w.items(1)[0]
	require.Equal(w, list(0, item.Fence, 1, 0, 0), one[1:6])
	require.Equal(w, one[6], one[7], "due when it was sent")
	require.Equal(w, one[6].(int64)+time.Hour.Milliseconds(), one[8])
	require.Equal(w, []any{"k1", "h", "b", int64(3)}, one[9:13])
	require.Equal(w, "né", one[14])
	require.Equal(w, []any{nil, nil, nil}, []any{two[8], two[9], two[10]})
	require.Nil(w, two[14])
	require.Equal(w, string(Member[:]), w.get(1)["leased_by"])
	require.InDelta(w, w.now()+time.Minute.Milliseconds(), w.get(1)["lease_until"], 10_000)

	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: item}})), 1)
	blind := *c
	blind.Blind = true
	again := w.claimSlots(&blind).rows[1]
	require.Greater(w, again[2], item.Fence)
	require.Equal(w, int64(2), again[3], "attempts")
	require.Equal(w, []any{nil, nil, nil}, again[9:12])
	require.Equal(w, one[12:15], again[12:15], "its place is what it was")
	w.lapse(1)
	require.Equal(w, int64(1), w.claimSlots(c).rows[1][4], "lapses")
}

func marks(w *world) {
	c := w.owner()
	w.line(0, "a", 1, 2, 3)
	w.line(1, "b", 4, 5)
	seqs := w.claimSlots(c).seqs
	require.Len(w, w.run(w.Release(Releases(w.items(1, 2, 3, 4, 5)))), 5)
	c.Parts[0].From, c.Parts[1].From = seqs[1], seqs[5]
	f := w.claimSlots(c)
	require.Equal(w, []byte{2, 3}, f.leased)
	require.Equal(w, map[int]int64{0: end, 1: end, 2: end, 3: end}, f.ends)
}

func slotEnds(w *world) {
	c := w.owner()
	w.line(0, "a", 1, 2, 3)
	w.line(1, "b", 4, 5)
	w.line(2, "c", 6)
	c.Parts[0].Limit, c.Parts[2].Limit = 2, 0
	f := w.claimSlots(c)
	require.Equal(w, []byte{1, 2, 4, 5}, f.leased)
	require.Equal(w, map[int]int64{0: f.seqs[2], 1: end, 2: 0, 3: end}, f.ends)

	require.Len(w, w.run(w.Release(Releases(w.items(1, 2, 4, 5)))), 4)
	c.Parts[0].Limit, c.Parts[2].Limit = most, most
	c.Rows = 4
	c.Parts[2].From = 7
	slices.Reverse(c.Parts[:2])
	f = w.claimSlots(c)
	require.Equal(w, []byte{1, 2, 4, 5}, f.leased, "those of slot 1 first")
	require.Equal(w, map[int]int64{1: end, 0: f.seqs[2], 2: 7, 3: 0}, f.ends)
	c.Rows = 0
	require.Equal(w, map[int]int64{1: 0, 0: 0, 2: 7, 3: 0}, w.claimSlots(c).ends)
}

func walkedPast(w *world) {
	c := w.owner()
	w.line(0, "a", 1, 2, 3, 4, 5)
	require.Len(w, w.claimSlots(c).leased, 5)
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: w.items(1)[0], Delay: time.Minute}})), 1)
	require.Len(w, w.run(w.Release(Releases(w.items(2, 4)))), 2)
	w.lapse(5)

	c.Lapses = 1 // a suspect has one
	w.joinAs(other, time.Hour)
	c.Member, c.Parts[0].Fence = other, w.takeOver(0)
	c.Parts = c.Parts[:1]
	c.Rows = 4
	f := w.claimSlots(c)
	require.Equal(w, []byte{2, 4}, f.leased)
	require.InDelta(w, time.Minute.Milliseconds(), f.past[1], 10_000, "a retry")
	require.InDelta(w, time.Minute.Milliseconds(), f.past[3], 10_000, "somebody has leased it")
	require.NotContains(w, f.past, byte(5))
	require.Equal(w, map[int]int64{0: f.seqs[4]}, f.ends, "there were Rows, those walked past among them")

	c.Parts[0].From = f.seqs[4]
	require.Equal(w, map[byte]int64{5: 0}, w.claimSlots(c).past, "a suspect")
	c.Suspects = true
	require.Equal(w, []byte{5}, w.claimSlots(c).leased)
}

// takeOver is the fence of a slot that other takes from Member, who has left.
func (w *world) takeOver(slot int) int64 {
	w.Helper()
	w.run(w.Leave(Member))
	fences := w.take(other, slot)
	require.Len(w, fences, 1)
	return fences[slot]
}

func ownLeases(w *world) {
	c := w.owner()
	w.line(0, "a", 1, 2, 3)
	require.Len(w, w.claimSlots(c).leased, 3)
	w.line(0, "a", 4, 5)
	c.Rows, c.Parts[0].Limit = 1, 1
	f := w.claimSlots(c)
	require.Equal(w, []byte{4}, f.leased, "they count for no limit")
	require.Empty(w, f.past)
	require.Equal(w, f.seqs[4], f.ends[0])

	c.Rows, c.Parts[0].Limit, c.Mine = most, 3, true
	f = w.claimSlots(c)
	require.Empty(w, f.leased)
	require.Len(w, f.past, 3, "now they count")
	require.InDelta(w, time.Minute.Milliseconds(), f.past[1], 10_000)
	require.Equal(w, f.seqs[3], f.ends[0])
	c.Parts[0].Limit = most
	f = w.claimSlots(c)
	require.Equal(w, []byte{5}, f.leased)
	require.Len(w, f.past, 4)
}

func notHisSlot(w *world) {
	c := w.owner()
	w.line(0, "a", 1)
	nothing := func(why string, c sqlbatch.SlotClaim) {
		w.Helper()
		f := w.claimSlots(&c)
		require.Empty(w, f.seqs, why)
		require.Empty(w, f.ends, why)
	}
	stranger := *c
	stranger.Member = other
	w.joinAs(other, time.Hour)
	nothing("another's slot", stranger)
	late := *c
	late.Parts = slices.Clone(c.Parts)
	for i := range late.Parts {
		late.Parts[i].Fence--
	}
	nothing("another fence", late)
	w.run(w.Pause())
	nothing("paused", *c)
	w.run(w.Resume())
	w.shift("chanq_members.until", -2*time.Hour, "name = '"+nameOf(Member)+"'")
	nothing("his time is over", *c)
	w.joinAs(Member, time.Hour)
	require.Len(w, w.run(w.GiveSlots(Member, ownedOf(c.Parts[:1]))), 1)
	f := w.claimSlots(c)
	require.Empty(w, f.leased)
	require.Equal(w, map[int]int64{1: end, 2: end, 3: end}, f.ends, "one was given back")
	w.run(w.Leave(Member))
	nothing("he has left", *c)
	require.Equal(w, "ready", w.get(1)["state"])
	require.Equal(w, int64(0), w.get(1)["attempts"])
}

func keyedRowsKeepTheirOrder(w *world) {
	c := w.owner()
	w.line(0, "a", 3)
	rows := []sqlbatch.Row{
		{ID: ID(9), Key: "z", OrderKey: "a"}, {ID: ID(8), Key: "y", OrderKey: "a"}, {ID: ID(3), Key: "x", OrderKey: "a"}, {ID: ID(1), Key: "b", OrderKey: "a"}, {ID: ID(7), Key: "c", OrderKey: "a"},
	}
	require.ElementsMatch(w, []byte{9, 8, 1, 7}, Numbers(w.run(w.EnqueueNew(rows))))
	f := w.claimSlots(c)
	require.Equal(w, []byte{3, 9, 8, 1, 7}, f.leased)
	require.Equal(w, "c", f.rows[7][9])
	require.Equal(w, "a", f.rows[7][14])
}

func numbersGrow(w *world) {
	c := w.owner()
	last := int64(0)
	for round := range byte(3) {
		w.line(int(round), "a", 1, 2)
		w.send(sqlbatch.Row{ID: ID(3), OrderKey: "a", Slot: int(round)})
		f := w.claimSlots(c)
		require.Equal(w, []byte{1, 2, 3}, f.leased)
		for _, n := range f.leased {
			require.Greater(w, f.seqs[n], last)
			last = f.seqs[n]
		}
		require.Len(w, w.run(w.Ack(w.items(1, 2, 3))), 3)
	}
}

func anyProgramSends(w *world) {
	c := w.owner()
	w.line(1, "a", 1)
	w.exec("INSERT INTO chanq_orders (body) VALUES (%s), (%s)", w.bytes([]byte("x")), w.bytes([]byte("y")))
	w.exec("INSERT INTO chanq_orders (slot, order_key, body) VALUES (1, %s, %s)", w.bytes([]byte("a")), w.bytes([]byte("z")))
	w.line(1, "a", 2)
	rows := w.run(w.Peek(sqlbatch.Ready, 10, nil))
	var bodies []string
	for _, row := range rows {
		bodies = append(bodies, row[15].(string))
	}
	require.Equal(w, []string{"\x01\x01", "x", "y", "z", "\x02\x02"}, bodies, "each after what was there")
	for _, row := range rows[1:3] {
		require.GreaterOrEqual(w, row[16], int64(0))
		require.Less(w, row[16], int64(slots))
		require.Nil(w, row[18])
	}
	all := 0
	for _, row := range w.run(w.ClaimSlots(*c)) {
		if row[0] != nil {
			all++
		}
	}
	require.Equal(w, 5, all)
}
