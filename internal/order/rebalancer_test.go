package order

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/chanq/chanq/sqlbatch"
)

const shareLease = 3 * time.Second

// shareWorld is a database of slots and memberships.
type shareWorld struct {
	now    time.Duration
	owners [][16]byte
	fences []int64
	until  map[[16]byte]time.Duration
	shy    int // consumers that take no slot
	moved  int
	born   int
	all    []*shareActor
	late   []func()
}

// shareActor is a consumer. Messages of the slots that it holds might be delivered.
type shareActor struct {
	w         *shareWorld
	id        [16]byte
	r         *Rebalancer
	holds     map[int]bool
	fences    map[int]int64 // with which it reads
	leaving   map[int]bool
	busy      map[int]int
	local     time.Duration // end of the membership by the local clock
	dead, off bool          // off: paused
}

func newShareWorld(slots, consumers int) *shareWorld {
	w := &shareWorld{now: time.Hour, owners: make([][16]byte, slots), fences: make([]int64, slots)}
	w.until = map[[16]byte]time.Duration{}
	for range consumers {
		w.join()
	}
	return w
}

func (w *shareWorld) newID() [16]byte {
	w.born++
	id := [16]byte{byte(w.born), byte(w.born >> 8), 1}
	binary.LittleEndian.PutUint64(id[8:], uint64(w.born)*0x9E3779B97F4A7C15)
	return id
}

func (w *shareWorld) join() *shareActor {
	a := &shareActor{w: w, id: w.newID(), holds: map[int]bool{}, fences: map[int]int64{}, leaving: map[int]bool{},
		busy: map[int]int{}}
	a.r = NewRebalancer(len(w.owners), a.id, a)
	w.until[a.id], a.local = w.now+shareLease, w.now+shareLease
	w.all = append(w.all, a)
	return a
}

func (w *shareWorld) lives(id [16]byte) bool { return w.until[id] > w.now }

func (w *shareWorld) living() []*shareActor {
	return slices.DeleteFunc(slices.Clone(w.all), func(a *shareActor) bool { return a.dead })
}

func (w *shareWorld) look() (rows []SlotRow, consumers int) {
	consumers = w.shy
	for id := range w.until {
		consumers += bit(w.lives(id))
	}
	for i, owner := range w.owners {
		row := SlotRow{Slot: i, Fence: w.fences[i]}
		if w.lives(owner) {
			row.Owner = owner
		}
		rows = append(rows, row)
	}
	return rows, consumers
}

func (w *shareWorld) take(id [16]byte, list []int) (got []Slot) {
	for _, slot := range list {
		if o := w.owners[slot]; !w.lives(id) || o != [16]byte{} && o != id && w.lives(o) {
			continue
		}
		w.moved += bit(w.owners[slot] != id)
		w.owners[slot] = id
		w.fences[slot]++
		got = append(got, Slot{Number: slot, Fence: w.fences[slot]})
	}
	return got
}

func (w *shareWorld) give(id [16]byte, list []sqlbatch.OwnedSlot) {
	for _, o := range list {
		if w.owners[o.Slot] == id && w.fences[o.Slot] == o.Fence {
			w.owners[o.Slot] = [16]byte{}
		}
	}
}

func (a *shareActor) Busy(slot int) int { return a.busy[slot] }

func (a *shareActor) Doubt(int) bool { return false }

func (a *shareActor) Take(taken []Slot, _ time.Duration) {
	for _, sl := range taken {
		a.holds[sl.Number], a.fences[sl.Number] = true, sl.Fence
		delete(a.leaving, sl.Number)
	}
}

func (a *shareActor) Return(slot int, _ time.Duration) { a.leaving[slot] = true }

func (a *shareActor) Drop(slot int, _ time.Duration) {
	delete(a.holds, slot)
	delete(a.leaving, slot)
	delete(a.busy, slot)
}

// drain gives up the slots that are leaving and not busy.
func (a *shareActor) drain() {
	for slot := range a.leaving {
		if a.busy[slot] == 0 {
			delete(a.holds, slot)
			delete(a.leaving, slot)
		}
	}
}

// The possible courses of a statement.
const (
	answered = iota
	lostBefore
	lostAfter
	runsLate
)

// run runs a statement, and reports whether it is answered.
func (a *shareActor) run(fate int, statement func()) bool {
	switch fate {
	case runsLate:
		a.w.late = append(a.w.late, statement)
	case answered, lostAfter:
		statement()
	}
	return fate == answered
}

// tend runs the statements that are due, at most one of each kind.
func (a *shareActor) tend(fate func() int) {
	w := a.w
	if w.now >= a.local { // it joins again
		a.id = w.newID()
		a.r.Lost(a.id, w.now)
		a.local, w.until[a.id] = w.now+shareLease, w.now+shareLease
	}
	id := a.id
	if began := w.now; a.run(fate(), func() {
		if w.lives(id) {
			w.until[id] = w.now + shareLease
		}
	}) && w.lives(id) {
		a.local = max(a.local, began+shareLease)
	}
	if look, _ := a.r.Due(w.now); look {
		if rows, n := w.look(); fate() == answered {
			a.r.Look(rows, n, w.now)
			a.drain()
		}
	}
	a.move(fate)
}

// move runs the statements that return and take slots.
func (a *shareActor) move(fate func() int) {
	w, id := a.w, a.id
	if list := a.r.Emptied(); len(list) > 0 && a.run(fate(), func() { w.give(id, list) }) {
		a.r.Gave(list, w.now)
	}
	if list := a.r.Asked(); len(list) > 0 {
		var got []Slot
		if a.run(fate(), func() { got = w.take(id, list) }) {
			a.r.Took(list, got, w.now)
		}
	}
}

func well() int { return answered }

func (w *shareWorld) tick() {
	w.now += 50 * time.Millisecond
	for _, a := range w.living() {
		if a.off {
			continue
		}
		clear(a.busy)
		a.drain()
		if a.tend(well); a.r.ending && a.r.Empty() {
			a.dead = true
			delete(w.until, a.id)
		}
	}
}

// oneHolder checks that each consumer owns the slots of which it might deliver messages.
func (w *shareWorld) oneHolder(t require.TestingT) {
	for _, a := range w.living() {
		for slot := range a.holds {
			if w.now < a.local && w.owners[slot] != a.id {
				require.Equal(t, a.id, w.owners[slot], "slot %d", slot)
			}
		}
	}
}

// balanced reports whether each slot has an owner that reads it, and no consumer has more than its share.
func (w *shareWorld) balanced() bool {
	held, living := 0, w.living()
	for _, a := range living {
		list := a.r.Owned()
		for _, o := range list {
			held += bit(w.owners[o.Slot] == a.id && w.fences[o.Slot] == a.fences[o.Slot] && w.lives(a.id))
		}
		if len(list) > (len(w.owners)+len(living)-1)/len(living) {
			return false
		}
	}
	return held == len(w.owners)
}

// settle lets time pass until the slots are balanced, and returns how long it took.
func (w *shareWorld) settle(t require.TestingT, most time.Duration) time.Duration {
	for began := w.now; ; w.tick() {
		w.oneHolder(t)
		if w.balanced() {
			return w.now - began
		}
		require.LessOrEqual(t, w.now-began, most, "not balanced")
	}
}

// shareRounds is the time for a look that returns slots, and for two that take them: another consumer might have been
// first.
const shareRounds = 3*lookEvery + 150*time.Millisecond

func TestNoSlotHasTwoHoldersAndEachHasOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newShareWorld(rapid.IntRange(1, 12).Draw(t, "slots"), 1)
		fates := rapid.SampledFrom([]int{answered, answered, answered, answered, lostBefore, lostAfter, runsLate})
		fate := func() int { return fates.Draw(t, "fate") }
		actor := func(t *rapid.T) *shareActor {
			living := w.living()
			if len(living) == 0 {
				t.Skip("all have left")
			}
			return living[rapid.IntRange(0, len(living)-1).Draw(t, "consumer")]
		}
		tend := func(t *rapid.T) { actor(t).tend(fate) }
		all := func(*rapid.T) { w.tick() }
		t.Repeat(map[string]func(*rapid.T){
			"tend": tend, "tend 2": tend, "tend 3": tend, "all": all, "all 2": all,
			"time": func(t *rapid.T) {
				w.now += time.Duration(rapid.IntRange(1, 1500).Draw(t,
					"ms")) * time.Millisecond
			},
			"pause": func(*rapid.T) { w.now += 2 * shareLease },
			"busy": func(t *rapid.T) {
				if a := actor(t); w.now < a.local {
					for _, o := range a.r.Owned() {
						a.busy[o.Slot] = rapid.IntRange(0, 2).Draw(t, "busy")
					}
				}
			},
			"one is paused": func(t *rapid.T) { a := actor(t); a.off = !a.off },
			"late": func(t *rapid.T) {
				if len(w.late) > 0 {
					i := rapid.IntRange(0, len(w.late)-1).Draw(t, "statement")
					run := w.late[i]
					w.late = slices.Delete(w.late, i, i+1)
					run()
				}
			},
			"join": func(*rapid.T) {
				if len(w.living()) < 6 {
					w.join()
				}
			},
			"doubt": func(t *rapid.T) { actor(t).r.Doubt(w.now) },
			"leave": func(t *rapid.T) {
				if a := actor(t); len(w.living()) > 1 {
					a.r.End(w.now)
					a.drain()
				}
			},
			"die": func(t *rapid.T) {
				if len(w.living()) > 1 {
					actor(t).dead = true
				}
			},
			"": func(t *rapid.T) { w.oneHolder(t) },
		})
		for _, run := range w.late {
			run()
			w.oneHolder(t)
		}
		w.join() // a consumer that does not leave
		for _, a := range w.all {
			a.off = false
		}
		for range 2 * shareLease / (50 * time.Millisecond) {
			w.tick()
			w.oneHolder(t)
		}
		w.settle(t, 2*shareRounds+2*lookEvery) // slots might be kept
	})
}

func TestAConsumerThatJoinsHasItsShareInThreeLooks(t *testing.T) {
	w := newShareWorld(64, 1)
	w.settle(t, shareRounds)
	for range 7 {
		w.join()
		w.tick()
		require.Less(t, w.settle(t, shareRounds), shareRounds)
	}
}

func TestConsumersThatStartTogetherHaveTheirSharesSoon(t *testing.T) {
	for _, consumers := range []int{2, 8, 64} {
		w := newShareWorld(64, 1)
		w.settle(t, shareRounds)
		for range consumers - 1 {
			w.join()
		}
		for began := w.now; !w.balanced(); w.now += 50 * time.Millisecond { // each looks before the first one takes
			require.Less(t, w.now-began, 10*lookEvery, "%d consumers", consumers)
			for _, a := range w.all {
				if look, _ := a.r.Due(w.now); look {
					rows, n := w.look()
					a.r.Look(rows, n, w.now)
				}
				a.drain()
				a.local, w.until[a.id] = w.now+shareLease, w.now+shareLease
			}
			for _, a := range w.all {
				a.move(well)
			}
			w.oneHolder(t)
		}
	}
}

func TestSlotsAreTakenWhenTheMembershipOfTheirOwnerHasEnded(t *testing.T) {
	w := newShareWorld(64, 2)
	w.settle(t, 2*shareRounds)
	w.all[0].dead = true
	require.Less(t, w.settle(t, shareLease+2*lookEvery), shareLease+2*lookEvery)
}

func TestSlotsThatAreReturnedAreTakenAtTheNextLook(t *testing.T) {
	w := newShareWorld(64, 2)
	w.settle(t, 2*shareRounds)
	w.all[0].r.End(w.now)
	for !w.all[0].dead {
		w.tick()
	}
	w.all[1].r.Hurry(w.now)
	require.LessOrEqual(t, w.settle(t, shareRounds), 2*50*time.Millisecond)
}

func TestConsumersThatComeAndGoMoveFewSlots(t *testing.T) {
	for _, c := range []struct {
		times       int
		stays, away time.Duration
		most        int // slots that move each time
	}{
		{30, 1500 * time.Millisecond, 550 * time.Millisecond, 2 * 64 / 4},
		{30, 4 * time.Second, 2100 * time.Millisecond, 2 * 64 / 4},
	} {
		w := newShareWorld(64, 3)
		w.settle(t, 3*shareRounds)
		before := w.moved
		for range c.times {
			a := w.join()
			for end := w.now + c.stays; w.now < end; {
				w.tick()
				w.oneHolder(t)
			}
			a.r.End(w.now)
			for end := w.now + c.away; w.now < end || !a.dead; {
				w.tick()
			}
		}
		require.LessOrEqual(t, w.moved-before, c.times*c.most, "a consumer that stays for %v", c.stays)
		w.settle(t, shareRounds)
	}
}

func TestNoSlotStarvesBecauseOfConsumersThatTakeNone(t *testing.T) {
	for _, shy := range []int{1, 3, 40} {
		w := newShareWorld(64, 2)
		w.settle(t, 3*shareRounds)
		w.shy = shy
		began, free := w.now, make([]time.Duration, 64)
		for w.now < began+2*time.Minute {
			w.tick()
			w.oneHolder(t)
			n := 0
			for slot, owner := range w.owners {
				if free[slot] += 50 * time.Millisecond; owner != [16]byte{} {
					free[slot] = 0
				}
				n += bit(owner == [16]byte{})
				require.LessOrEqual(t, free[slot], 10*lookEvery, "%d consumers that take none", shy)
			}
			if w.now > began+12*lookEvery {
				require.LessOrEqual(t, n, 2, "each consumer returns one slot at a time")
			}
		}
		w.shy = 0
		w.join()
		w.settle(t, 20*lookEvery) // one slot after the other
	}
}

func TestABusySlotIsReturnedLast(t *testing.T) {
	w := newShareWorld(4, 1)
	w.settle(t, shareRounds)
	a := w.all[0]
	a.busy = map[int]int{0: 2, 1: 0, 2: 1, 3: 0}
	rows, _ := w.look()
	a.r.Look(rows, 2, w.now)
	require.Equal(t, map[int]bool{1: true, 3: true}, a.leaving)
	a.busy[1], a.busy[3] = 1, 1
	require.Empty(t, a.r.Emptied(), "its messages are busy")
	a.busy[1] = 0
	require.Len(t, a.r.Emptied(), 1)
}

func TestASlotThatIsBeingReturnedIsTakenAgainIfTheShareIsGreater(t *testing.T) {
	w := newShareWorld(2, 1)
	w.settle(t, shareRounds)
	a := w.all[0]
	a.busy = map[int]int{0: 1, 1: 1} // for hours
	rows, _ := w.look()
	a.r.Look(rows, 2, w.now)
	require.Len(t, a.leaving, 1)
	require.Empty(t, a.r.Asked())
	a.r.Look(rows, 1, w.now)
	require.Len(t, a.r.Asked(), 1)
}

func TestAReturnThatRunsLateFreesNothingThatWasTakenAgain(t *testing.T) {
	w := newShareWorld(2, 1)
	w.settle(t, shareRounds)
	a := w.all[0]
	a.r.leave(0, w.now)
	a.drain()
	a.tend(func() int { return runsLate }) // below its share it takes the slot again
	w.settle(t, shareRounds)
	for _, run := range w.late {
		run()
	}
	require.Equal(t, a.id, w.owners[0])
	w.oneHolder(t)
}

func TestASlotThatAnotherConsumerOwnsIsGone(t *testing.T) {
	w := newShareWorld(2, 1)
	w.settle(t, shareRounds)
	a := w.all[0]
	rows, _ := w.look()
	rows[1].Owner = [16]byte{99}
	a.r.Look(rows, 1, w.now)
	require.Equal(t, map[int]bool{0: true}, a.holds)
	require.Len(t, a.r.Owned(), 1)
}

func TestASlotThatALateTakeOwnsIsReturnedIfItIsAboveTheShare(t *testing.T) {
	w := newShareWorld(2, 2)
	w.settle(t, 2*shareRounds)
	a := w.all[0]
	rows, _ := w.look()
	other := 1 - a.r.Owned()[0].Slot
	rows[other].Owner, rows[other].Fence = a.id, 7
	a.r.Look(rows, 2, w.now)
	require.Equal(t, []sqlbatch.OwnedSlot{{Slot: other, Fence: 7}}, a.r.Emptied())
}

func TestATakeThatRanLateIsRepeated(t *testing.T) {
	w := newShareWorld(2, 1)
	w.settle(t, shareRounds)
	a := w.all[0]
	w.take(a.id, []int{0, 1})
	require.False(t, w.balanced(), "no read matches the fences")
	w.settle(t, shareRounds)
}

func TestAConsumerLooksOnceASecond(t *testing.T) {
	w := newShareWorld(2, 1)
	w.settle(t, shareRounds)
	a := w.all[0]
	due := func() time.Duration { _, wait := a.r.Due(w.now); return wait }
	rows, _ := w.look()
	a.r.Look(rows, 1, w.now)
	require.Equal(t, time.Second, due())
	for range 3 {
		a.r.Hurry(w.now)
		require.Equal(t, 50*time.Millisecond, due())
	}
	list, took := []int{0, 1}, []Slot{{Number: 0}}
	for _, got := range [][]Slot{nil, took} { // without an early look a locked row leads to one take a second
		a.r.Look([]SlotRow{{Slot: 0}, {Slot: 1}}, 1, w.now)
		require.Len(t, a.r.Asked(), 2)
		a.r.Took(list, got, w.now)
		want := lookEvery
		if len(got) > 0 {
			want = 50 * time.Millisecond
		}
		require.Equal(t, want, due())
	}
}

func TestSlotsAreSettledWhenEachHasALivingOwner(t *testing.T) {
	w := newShareWorld(2, 1)
	w.settle(t, shareRounds)
	r := w.all[0].r
	look := func(row SlotRow) bool {
		rows, _ := w.look()
		row.Slot, row.Fence = 1, rows[1].Fence
		rows[1] = row
		r.Look(rows, 2, w.now)
		return r.Settled()
	}
	require.False(t, look(SlotRow{}))
	require.True(t, look(SlotRow{Owner: [16]byte{9}}))
	require.False(t, look(SlotRow{}))
	r.Lost([16]byte{8}, w.now)
	require.False(t, r.Settled(), "nothing is known about the slots")
}
