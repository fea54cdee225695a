package chanq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// claimedLines are lines of one slot after a claim that found these rows, all of one key,
// and came to the end of the slot.
func claimedLines(config lineConfig, horizon int64, seqs ...int64) *lines {
	ls := newLines(config)
	ls.open(0, 1, 0, 0)
	s := &sim{lines: ls}
	var rows []lineRow
	for _, seq := range seqs {
		id := ID{byte(seq)}
		rows = append(rows, lineRow{id: id, seq: seq, key: lineKey{"a", true}, lease: &lease{owner: simOwner{s}, item: sqlbatch.Item{ID: id, Fence: seq}}})
	}
	ls.claimed(ls.plan(0, horizon, time.Second, false), rows, []lineEnd{{seq: slotEnd}}, 0)
	return ls
}

func TestAClaimBeginsWhereTheOneBeforeItEndedButNotAboveTheHorizonOfThat(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, 3, 1, 2, 3, 4, 5)
	require.EqualValues(t, 3, ls.plan(1, slotEnd, time.Second, false).parts[0].From)
	ls.claimed(ls.plan(1, slotEnd, time.Second, false), nil, []lineEnd{{seq: 4}}, 1)
	require.EqualValues(t, 4, ls.plan(1, 9, time.Second, false).parts[0].From)
}

func TestWhereTheDatabaseMayHaveForgottenNumbersAllIsReadAgain(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100, leaseFor: time.Minute}, slotEnd, 1, 2, 3)
	require.EqualValues(t, 3, ls.plan(1, slotEnd, time.Hour, false).parts[0].From)
	ls.forget(2)
	p := ls.plan(2, slotEnd, time.Hour, false)
	require.Zero(t, p.parts[0].From)
	require.True(t, p.mine, "leases may be ours that we do not know of")
	ls.claimed(p, nil, nil, 2)
	require.Zero(t, ls.plan(3, slotEnd, time.Hour, false).parts[0].From, "that claim has not read it")
}

func TestASlotOfWhichMuchWaitsIsNotClaimed(t *testing.T) {
	seqs := make([]int64, leastWaiting/2+4)
	for i := range seqs {
		seqs[i] = int64(i + 1)
	}
	ls := claimedLines(lineConfig{prefetch: 1}, slotEnd, seqs...)
	require.Empty(t, ls.plan(1, slotEnd, time.Hour, false).parts)
	require.Equal(t, 1, ls.stalled())
	for i := range 4 {
		l, _ := ls.next()
		require.EqualValues(t, i+1, l.item.Fence)
		l.state.Store(leaseSettling)
		l.finish(nil)
	}
	require.True(t, ls.wanted, "the claimer is to be woken")
	require.Len(t, ls.plan(1, slotEnd, time.Hour, false).parts, 1)
}

func TestWhatTheDeadHeldIsReadFromTheBeginning(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100, holds: true}, slotEnd, 1, 2)
	require.Equal(t, []int{0}, ls.asking(false))
	l, _ := ls.next()
	require.Nil(t, l, "who knows which keys are held")
	ls.allow(0, nil, 0)
	l, _ = ls.next()
	l.state.Store(leaseSettling)
	l.op = settleDead
	ls.asking(true)
	l.finish(nil)
	ls.allow(0, nil, 1)
	l, _ = ls.next()
	require.Nil(t, l, "it was not dead when that was asked")
	back, _ := ls.collect()
	require.Empty(t, back, "it is not claimed again and again")
	require.Equal(t, []int{0}, ls.asking(true))
	ls.allow(0, nil, 2)
	back, _ = ls.collect()
	require.Len(t, back, 1)
	require.Zero(t, ls.plan(2, slotEnd, time.Hour, false).parts[0].From, "what was redriven goes first")
}

func TestAnEntryThatIsMadeWhileAClaimIsUnderWayIsNotGoneByThat(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, 0, 1, 2)
	l, _ := ls.next()
	p := ls.plan(1, 0, time.Hour, false)
	l.state.Store(leaseSettling)
	l.op = settleNack
	l.finish(nil)
	ls.claimed(p, nil, []lineEnd{{seq: slotEnd}}, 1)
	two, _ := ls.next()
	require.Nil(t, two, "that claim saw it leased")
	ls.claimed(ls.plan(2, 0, time.Hour, false), nil, []lineEnd{{seq: slotEnd}}, 2)
	two, _ = ls.next()
	require.NotNil(t, two, "it was cancelled")
}

func TestASlotThatIsToBeTakenAnewIsNotClaimedBefore(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, slotEnd, 1)
	ls.own(nil)
	require.Empty(t, ls.plan(1, slotEnd, time.Hour, false).parts)
	ls.own([]ownSlot{{0, 2}})
	require.Empty(t, ls.plan(1, slotEnd, time.Hour, false).parts, "its fence is another")
	ls.open(0, 2, 0, 1)
	ls.own([]ownSlot{{0, 2}})
	require.Len(t, ls.plan(1, slotEnd, time.Hour, false).parts, 1)
}

func TestWhereFewKeysMayBeAtWorkTheyTakeTurns(t *testing.T) {
	ls := newLines(lineConfig{prefetch: 100})
	ls.open(0, 1, 1, 0)
	s := &sim{lines: ls}
	var rows []lineRow
	for seq := range int64(4) {
		key := lineKey{[]string{"a", "a", "b", "b"}[seq], true}
		rows = append(rows, lineRow{seq: seq + 1, key: key, lease: &lease{owner: simOwner{s}, item: sqlbatch.Item{Fence: seq + 1}}})
	}
	ls.claimed(ls.plan(0, slotEnd, time.Second, false), rows, []lineEnd{{seq: slotEnd}}, 0)
	var got []int64
	for l, _ := ls.next(); l != nil; l, _ = ls.next() {
		got = append(got, l.item.Fence)
		l.state.Store(leaseSettling)
		l.finish(nil)
	}
	require.Equal(t, []int64{1, 3, 2, 4}, got)
}

// TestASuspectWaitsForNoOther has the one that is held wait behind another, which would never be
// asked for.
func TestASuspectWaitsForNoOther(t *testing.T) {
	ls := newLines(lineConfig{prefetch: 100})
	ls.open(0, 1, 0, 0)
	s := &sim{lines: ls}
	key := lineKey{"a", true}
	two := &lease{owner: simOwner{s}, suspect: true}
	p := ls.plan(0, slotEnd, time.Hour, false)
	ls.claimed(p, []lineRow{{seq: 1, key: key, wait: time.Second}, {seq: 2, key: key, lease: two}}, []lineEnd{{seq: slotEnd}}, 0)
	back, _ := ls.collect()
	require.Equal(t, []*lease{two}, back)
	two.state.Store(leaseSettling)
	two.op = settleRelease
	two.finish(nil)
	p = ls.plan(1, slotEnd, time.Hour, true)
	require.True(t, p.spare, "the first of the line is not due")
	require.False(t, p.probe)
	const locked = 2 * time.Second
	for i := range time.Duration(3) { // by claims that are for others, too
		passed := []lineRow{{seq: 1, key: key}, {seq: 2, key: key}}
		ls.claimed(ls.plan(locked+i, slotEnd, 0, false), passed, []lineEnd{{seq: slotEnd}}, locked+i)
	}
	p = ls.plan(locked+retryPause, slotEnd, time.Hour, true)
	require.True(t, p.probe)
	require.EqualValues(t, 0, p.parts[0].From, "the first of its line is tried, alone")
	one := &lease{owner: simOwner{s}, suspect: true}
	ls.claimed(p, []lineRow{{seq: 1, key: key, lease: one}}, []lineEnd{{seq: 1}}, locked+retryPause)
	l, _ := ls.next()
	require.Same(t, one, l)
}

func TestTheNextSuspectIsTriedAtOnceAndNoClaimIsMadeForTheOthers(t *testing.T) {
	ls := newLines(lineConfig{prefetch: 100})
	ls.open(0, 1, 0, 0)
	p := ls.plan(0, slotEnd, time.Hour, false)
	p.spare = true // one is in hand
	passed := []lineRow{{seq: 1, key: lineKey{"a", true}}, {seq: 2, key: lineKey{"b", true}}}
	ls.claimed(p, passed, []lineEnd{{seq: slotEnd}}, 0)
	due, _ := ls.due()
	require.Equal(t, retryPause, due, "they may be in somebody's hands as well")
	p = ls.plan(1, slotEnd, time.Hour, true)
	require.True(t, p.probe)
	require.EqualValues(t, 0, p.parts[0].From)
	ls.claimed(p, passed[:1], []lineEnd{{seq: 1}}, 1) // it is
	p = ls.plan(2, slotEnd, time.Hour, true)
	require.True(t, p.probe)
	require.EqualValues(t, 1, p.parts[0].From, "the other one")
	ls.claimed(p, passed[1:], []lineEnd{{seq: 2}}, 2)
	require.False(t, ls.plan(3, slotEnd, time.Hour, true).probe, "not in vain again and again")
}

func TestWhatAClaimSawOfAMessageThatEndedMeanwhileClosesNothing(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100, leaseFor: time.Minute}, slotEnd, 1, 2)
	first, _ := ls.next()
	ls.forget(1)
	p := ls.plan(1, slotEnd, time.Hour, false)
	require.True(t, p.mine)
	first.op = settleAck
	first.state.Store(leaseSettled)
	ls.moved(first, 1)
	second, _ := ls.next()
	require.NotNil(t, second, "the first one's ack is in the database")
	key := lineKey{"a", true}
	ls.claimed(p, []lineRow{{id: ID{1}, seq: 1, key: key, wait: time.Minute}, {id: ID{2}, seq: 2, key: key, wait: time.Minute}}, []lineEnd{{seq: slotEnd}}, 1)
	second.op = settleAck
	second.state.Store(leaseSettled)
	ls.moved(second, 2)
	ls.claimed(ls.plan(2, slotEnd, time.Hour, false), []lineRow{{seq: 3, key: key, lease: &lease{owner: simOwner{&sim{lines: ls}}}}}, []lineEnd{{seq: slotEnd}}, 2)
	third, _ := ls.next()
	require.NotNil(t, third)
}

func TestAPausedQueueIsNotClaimedAgainAtOnce(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, slotEnd)
	ls.claimed(ls.plan(1, slotEnd, time.Hour, false), []lineRow{{seq: 1, key: lineKey{"a", true}, wait: time.Second}}, []lineEnd{{seq: slotEnd}}, 1)
	now := time.Minute
	ls.claimed(ls.plan(now, slotEnd, time.Hour, false), nil, nil, now)
	due, any := ls.due()
	require.True(t, any)
	require.Greater(t, due, now)
}

func TestWhereRoomWasWantingTheNextClaimBegins(t *testing.T) {
	ls := newLines(lineConfig{prefetch: 100})
	for slot := range 3 {
		ls.open(slot, 1, 0, 0)
	}
	served := func() (slots []int) {
		p := ls.plan(1, slotEnd, 0, false)
		for _, part := range p.parts {
			slots = append(slots, part.Slot)
		}
		ls.claimed(p, nil, []lineEnd{{p.parts[0].Slot, slotEnd}, {p.parts[1].Slot, p.parts[1].From}, {p.parts[2].Slot, p.parts[2].From}}, 1)
		return slots
	}
	require.Equal(t, []int{0, 1, 2}, served())
	require.Equal(t, []int{1, 2, 0}, served())
	require.Equal(t, []int{2, 0, 1}, served())
}

func TestWhatIsKnownTakesNoRoomOfAClaim(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, slotEnd)
	var rows []lineRow
	for seq := range int64(5) {
		rows = append(rows, lineRow{seq: seq + 1, key: lineKey{"a", true}, wait: time.Hour})
	}
	ls.claimed(ls.plan(1, slotEnd, time.Hour, false), rows, []lineEnd{{seq: slotEnd}}, 1)
	ls.sweep(2)
	p := ls.plan(2, slotEnd, time.Hour, false)
	require.Equal(t, 5, p.known)
	require.Greater(t, p.parts[0].Limit, p.known)
}

func TestWhatATransactionMayBeDeletingIsGoneOnceAClaimInDoubtSaysSo(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100, hides: true}, slotEnd, 1, 2)
	l, _ := ls.next()
	l.op, l.delay = settleNack, time.Hour
	l.state.Store(leaseSettling)
	l.finish(nil)
	sweep := ls.plan(time.Second, slotEnd, time.Hour, false)
	require.False(t, sweep.parts[0].Doubt)
	ls.claimed(sweep, nil, []lineEnd{{seq: slotEnd}}, time.Second)
	two, _ := ls.next()
	require.Nil(t, two, "the transaction may roll back")
	asked := ls.plan(time.Second, slotEnd, time.Hour, false)
	require.True(t, asked.parts[0].Doubt)
	require.False(t, asked.mine, "of our own nothing is in doubt")
	ls.claimed(asked, nil, []lineEnd{{seq: asked.parts[0].From}}, time.Second)
	require.False(t, ls.plan(time.Second, slotEnd, time.Hour, false).parts[0].Doubt, "it is locked: the rest of the slot goes on meanwhile")
	asked = ls.plan(time.Second+retryPause, slotEnd, time.Hour, false)
	require.True(t, asked.parts[0].Doubt)
	ls.claimed(asked, nil, []lineEnd{{seq: slotEnd}}, 2*time.Second)
	two, _ = ls.next()
	require.NotNil(t, two, "it was cancelled")
}

func TestALeaseThatIsAckedInTwoTransactionsIsLookedAfterOnce(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, slotEnd, 1, 2)
	l, _ := ls.next()
	require.NoError(t, l.enterTx())
	require.NoError(t, l.enterTx(), "the first was rolled back")
	due, _ := ls.looks(time.Minute)
	require.Len(t, due, 1)
	ls.looked(l, standsGone, time.Minute)
	due, _ = ls.looks(time.Hour)
	require.Empty(t, due)
	two, _ := ls.next()
	require.NotNil(t, two)
}

// TestSlotsThatAreBehindComeFirst has a claim without room for all begin with those whose messages
// were sent first, and with each in turn where they are equal.
func TestSlotsThatAreBehindComeFirst(t *testing.T) {
	const slots = 4
	ls := newLines(lineConfig{prefetch: 100})
	for slot := range slots {
		ls.open(slot, 1, 0, 0)
	}
	order := func(p linePlan) (numbers []int) {
		for _, part := range p.parts {
			numbers = append(numbers, part.Slot)
		}
		return numbers
	}
	full := func(reached ...int64) { // for more than these slots it had no room
		var ends []lineEnd
		p := ls.plan(1, slotEnd, time.Hour, false)
		for i, part := range p.parts {
			if i < len(reached) {
				ends = append(ends, lineEnd{part.Slot, reached[i]})
			} else {
				ends = append(ends, lineEnd{part.Slot, part.From})
			}
		}
		ls.claimed(p, nil, ends, 1)
	}
	full(7, 7)
	require.Equal(t, []int{2, 3, 0, 1}, order(ls.plan(1, slotEnd, time.Hour, false)), "that had no room")
	full(5, 9)
	require.Equal(t, []int{2, 0, 1, 3}, order(ls.plan(1, slotEnd, time.Hour, false)), "by how far they are")
	full(7)
	require.Equal(t, []int{0, 1, 2, 3}, order(ls.plan(1, slotEnd, time.Hour, false)))
	full(slotEnd) // the first of those that are equal has nothing more
	require.Equal(t, []int{1, 2, 0, 3}, order(ls.plan(1, slotEnd, time.Hour, false)), "in turn, where they are equal")
}

func TestANumberThatTheDatabaseGivesAgainIsThatOfAnotherMessage(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100, leaseFor: time.Minute}, slotEnd, 1)
	former, _ := ls.next()
	ls.forget(1)
	key := lineKey{"a", true}
	two := &lease{owner: simOwner{&sim{lines: ls}}}
	ls.claimed(ls.plan(1, 0, time.Hour, false), []lineRow{{id: ID{8}, seq: 1, key: key}, {id: ID{9}, seq: 2, key: key, lease: two}}, []lineEnd{{seq: slotEnd}}, 1)
	_, lost := ls.collect()
	require.Equal(t, []*lease{former}, lost)
	former.op = settleAck
	former.state.Store(leaseSettled)
	ls.moved(former, 2)
	l, _ := ls.next()
	require.Nil(t, l, "the one before it is locked")
}

// TestALeaseThatIsOverKeepsNothingOfItsSlot: a reader may keep it for as long as he likes.
func TestALeaseThatIsOverKeepsNothingOfItsSlot(t *testing.T) {
	ls := claimedLines(lineConfig{prefetch: 100}, slotEnd, 1, 2)
	l, _ := ls.next()
	spot := l.spot
	l.state.Store(leaseSettling)
	l.finish(nil)
	require.Nil(t, l.spot)
	require.Nil(t, spot.lease, "nor do those keep it that were made with its spot")
	l, _ = ls.next()
	ls.drop(0)
	require.Nil(t, l.spot)
}
