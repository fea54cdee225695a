package chanq

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// living are the members whose processes run.
func (w *slotWorld) living() []*slotActor {
	return slices.DeleteFunc(slices.Clone(w.all), func(a *slotActor) bool { return a.dead })
}

func (w *slotWorld) stop() {
	for _, a := range w.all {
		a.stop()
	}
}

// oneHolder: nobody could hand out what is another's.
func (w *slotWorld) oneHolder(t require.TestingT) {
	for slot := range w.owners {
		for _, a := range w.living() {
			if a.holds[slot] && a.tenure.alive() {
				require.Equal(t, a.id, w.owners[slot], "slot %d is held by a member that is not its owner", slot)
			}
		}
	}
}

// balanced says whether each slot has an owner that holds it, and nobody more than his
// share.
func (w *slotWorld) balanced() bool {
	living := w.living()
	share := (len(w.owners) + len(living) - 1) / len(living)
	held := 0
	for _, a := range living {
		n := len(a.tenure.owned())
		if n > share || !a.tenure.alive() {
			return false
		}
		for _, own := range a.tenure.owned() {
			if own.fence == w.fences[own.slot] && own.fence == a.fences[own.slot] { // or no claim would find anything
				held++
			}
		}
	}
	return held == len(w.owners)
}

// tick lets 50 ms pass, in which everybody does what is due, and nothing fails.
func (w *slotWorld) tick() { w.tickBut(nil) }

// tickBut is tick while one of them stands still.
func (w *slotWorld) tickBut(still *slotActor) {
	w.now += 50 * time.Millisecond
	for _, a := range w.living() {
		if a == still {
			continue
		}
		for a.beatBegan != 0 || !a.tenure.check() || a.here.until()-a.here.now() < modelLease*2/3 {
			a.heartbeat(fateWell)
			if a.beatBegan == 0 {
				break
			}
		}
		for slot := range a.handed {
			a.finish(slot, a.handed[slot])
		}
		for again := 6; again > 0; again-- {
			a.step(fateWell)
		}
		for !a.idle() {
			a.step(fateWell)
		}
		if a.ending && a.tenure.empty() {
			w.leave(a.id)
			a.dead = true
		}
	}
}

// settle lets time pass until the slots are balanced, and returns how long that took.
func (w *slotWorld) settle(t require.TestingT, most time.Duration) time.Duration {
	began := w.now
	for !w.balanced() {
		w.tick()
		w.oneHolder(t)
		if w.now-began > most {
			for _, a := range w.living() {
				t.Errorf("member %x has %d slots, kept till %v of %v", a.id[:2], len(a.tenure.owned()), a.tenure.slots.keptTill, w.now)
			}
			require.FailNow(t, "not balanced", "after %v, %d members", most, len(w.living()))
		}
	}
	return w.now - began
}

// rounds is how long it takes until what has changed is balanced: a look that sees it, one
// that sees it again and gives back, and one that takes, of which only the first is a whole
// second away.
const rounds = 2*slotsEvery + mostVainTakes*slotsSoon + 150*time.Millisecond

// TestNoSlotHasTwoHoldersAndAllHaveOne has members that come, go, die, and stand still for
// longer than their lease, clocks that jump, and statements that fail before or after
// they ran, or run after they were given up.
func TestNoSlotHasTwoHoldersAndAllHaveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSlotWorld(rapid.IntRange(1, 12).Draw(t, "slots"))
		w.bell = rapid.Bool().Draw(t, "bell")
		defer w.stop()
		w.join()
		fates := rapid.SampledFrom([]int{fateWell, fateWell, fateWell, fateWell, fateNever, fateLate})
		member := func(t *rapid.T) *slotActor {
			living := w.living()
			if len(living) == 0 {
				t.Skip("all have left")
			}
			return living[rapid.IntRange(0, len(living)-1).Draw(t, "member")]
		}
		claimer := func(t *rapid.T) {
			a := member(t)
			for range rapid.IntRange(1, 6).Draw(t, "steps") {
				a.step(fates.Draw(t, "fate"))
				w.oneHolder(t)
			}
			if a.ending && a.idle() && a.tenure.empty() && len(w.living()) > 1 {
				w.leave(a.id)
				a.dead = true
			}
		}
		beat := func(t *rapid.T) {
			a := member(t)
			for range rapid.IntRange(1, 3).Draw(t, "steps") {
				a.heartbeat(fates.Draw(t, "fate"))
				w.oneHolder(t)
			}
		}
		all := func(*rapid.T) { w.tick() } // so that something comes about
		t.Repeat(map[string]func(*rapid.T){
			"claimer": claimer, "claimer again": claimer, "claimer once more": claimer,
			"beat": beat, "beat again": beat,
			"all": all, "all again": all,
			"time":            func(t *rapid.T) { w.now += time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond },
			"all stand still": func(*rapid.T) { w.now += 2 * modelLease },
			"one stands still, and again after a moment": func(t *rapid.T) {
				a := member(t)
				for range 2 {
					for range rapid.IntRange(0, 3).Draw(t, "beats") {
						a.heartbeat(fateWell)
					}
					for range rapid.IntRange(0, 80).Draw(t, "ticks") {
						w.tickBut(a)
						w.oneHolder(t)
					}
				}
			},
			"jump": func(t *rapid.T) {
				member(t).ahead += time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond
			},
			"claim": func(t *rapid.T) {
				if a := member(t); a.idle() && a.tenure.alive() {
					a.claim(fates.Draw(t, "fate"))
				}
			},
			"handlers": func(t *rapid.T) {
				if a := member(t); a.idle() {
					a.finish(rapid.IntRange(0, len(w.owners)-1).Draw(t, "slot"), 1)
				}
			},
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
			"leave": func(t *rapid.T) {
				if a := member(t); a.idle() && len(w.living()) > 1 && !a.ending {
					a.ending = true
					a.tenure.leave()
				}
			},
			"die": func(t *rapid.T) {
				if len(w.living()) > 1 {
					member(t).die(rapid.Bool().Draw(t, "late"))
				}
			},
			"": func(t *rapid.T) { w.oneHolder(t) },
		})
		for _, run := range w.late {
			run()
			w.oneHolder(t)
		}
		w.join() // one at least that does not leave
		last := w.now
		for range 2 * modelLease / (50 * time.Millisecond) { // who leaves has left, the dead are gone
			w.tick()
			w.oneHolder(t)
		}
		for _, until := range w.until {
			last = max(last, until)
		}
		for _, a := range w.living() {
			last = max(last, a.tenure.slots.keptTill)
		}
		w.settle(t, max(0, last-w.now)+rounds)
	})
}

func TestWhoJoinsHasHisShareInThreeRounds(t *testing.T) {
	for _, bell := range []bool{false, true} {
		w := newSlotWorld(64)
		w.bell = bell
		w.join()
		w.settle(t, rounds)
		for range 7 {
			w.join()
			w.tick()
			require.Less(t, w.settle(t, rounds), rounds)
		}
		w.stop()
	}
}

func TestTheSlotsOfOneThatDiedAreTakenWhenItsMembershipIsOver(t *testing.T) {
	w := newSlotWorld(64)
	defer w.stop()
	w.join()
	w.settle(t, rounds)
	w.join()
	w.tick()
	w.settle(t, rounds)
	w.all[0].die(false)
	require.Less(t, w.settle(t, modelLease+2*time.Second), modelLease+2*time.Second)
}

func TestOneThatLeavesHasItsSlotsTakenAtTheNextLook(t *testing.T) {
	w := newSlotWorld(64)
	defer w.stop()
	w.join()
	w.settle(t, rounds)
	w.join()
	w.tick()
	w.settle(t, rounds)
	w.all[0].ending = true
	w.all[0].tenure.leave()
	for !w.all[0].dead {
		w.tick()
	}
	w.all[1].tenure.hurry() // the bell
	require.LessOrEqual(t, w.settle(t, rounds), 2*slotsSoon)
}

func TestMembersThatComeAndGoMoveFewSlots(t *testing.T) {
	for _, c := range []struct {
		times       int
		stays, away time.Duration
		most        int // slots that move in a coming and a going
	}{
		{1, 450 * time.Millisecond, 0, 0}, // nobody sees it twice
		{30, 700 * time.Millisecond, 550 * time.Millisecond, 64 / 4},
		{30, 1500 * time.Millisecond, 550 * time.Millisecond, 2 * 64 / 4}, // its share, there and back
		{30, 4 * time.Second, 2100 * time.Millisecond, 2 * 64 / 4},
	} {
		w := newSlotWorld(64)
		for range 3 {
			w.join()
		}
		w.settle(t, 3*rounds)
		before := w.moved
		for range c.times {
			a := w.join()
			for end := w.now + c.stays; w.now < end; {
				w.tick()
				w.oneHolder(t)
			}
			a.ending = true
			a.tenure.leave()
			for end := w.now + c.away; w.now < end || !a.dead; {
				w.tick()
			}
		}
		require.LessOrEqual(t, w.moved-before, c.times*c.most, "one that stays for %v", c.stays)
		w.settle(t, rounds)
		w.stop()
	}
}

func TestNoSlotStarvesBecauseOfMembersThatTakeNone(t *testing.T) {
	for _, idle := range []int{1, 3, 40} {
		w := newSlotWorld(64)
		var free time.Duration // for how long a slot lay about
		shy := func() {
			for i := range idle {
				w.beat([16]byte{byte(i), 0, 2})
			}
		}
		w.join()
		w.join()
		w.settle(t, 3*rounds)
		longest, moved := time.Duration(0), w.moved
		for range 20 * 60 * 10 { // ten minutes
			shy()
			w.tick()
			w.oneHolder(t)
			if slices.Contains(w.owners, [16]byte{}) {
				free += 50 * time.Millisecond
				longest = max(longest, free)
			} else {
				free = 0
			}
		}
		require.LessOrEqual(t, longest, slotsStarve+8*time.Second, "%d members that take none", idle)
		require.LessOrEqual(t, w.moved-moved, 8*64, "and they are not given back again and again")
		w.stop()
	}
}

func TestABusySlotIsGivenBackLast(t *testing.T) {
	w := newSlotWorld(4)
	defer w.stop()
	a := w.join()
	w.settle(t, rounds)
	a.handed[0], a.handed[2] = 2, 1
	w.join()
	rows := w.look()
	a.tenure.slots.look(rows.rows, 2, w.now)
	a.tenure.slots.look(rows.rows, 2, w.now)
	require.Equal(t, []bool{true, false, true, false}, a.holds)

	a.tenure.slots.look(rows.rows, 4, w.now)
	a.tenure.slots.look(rows.rows, 4, w.now)
	require.True(t, a.leaving[2], "it is held as long as a handler runs")
	require.True(t, a.holds[2])
	a.finish(2, 1)
	require.False(t, a.holds[2])
	require.Len(t, a.tenure.slots.list(slotEmptied), 3)
}

// TestAGiveThatRunsLateFreesNothingThatWasTakenAgain: nor has its member the slot taken
// away from it.
func TestAGiveThatRunsLateFreesNothingThatWasTakenAgain(t *testing.T) {
	w := newSlotWorld(2)
	defer w.stop()
	a := w.join()
	w.settle(t, rounds)
	a.tenure.slots.leave(0)
	for a.idle() {
		a.step(fateWell) // to its give
	}
	a.step(fateLate)
	a.tenure.slots.notes[0].state = slotAsked // somebody has died
	w.tick()
	require.True(t, a.holds[0])
	w.late[0]()
	w.oneHolder(t)
	require.Equal(t, a.id, w.owners[0])
}

func TestWhoFindsThatOthersWereFasterLooksAgainSoon(t *testing.T) {
	w := newSlotWorld(4)
	defer w.stop()
	s := w.join().tenure.slots
	for range mostVainTakes {
		s.look(w.look().rows, 1, w.now)
		asked := s.list(slotAsked)
		require.Len(t, asked, 4)
		s.took(asked, asked[:2])
		require.Equal(t, slotsSoon, s.wait(w.now))
		s.lapse()
	}
	s.look(w.look().rows, 1, w.now)
	s.took(s.list(slotAsked), nil)
	require.Equal(t, slotsEvery/2, s.wait(w.now), "but not for ever")
}

func TestATakeThatRanLateIsMadeGood(t *testing.T) {
	w := newSlotWorld(2)
	defer w.stop()
	a := w.join()
	w.settle(t, rounds)
	w.take(a.id, a.tenure.owned())
	require.False(t, w.balanced(), "no claim finds anything under the old fences")
	w.settle(t, rounds)
}
