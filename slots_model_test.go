package chanq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// A database of slots, and members of it that stop between any two steps: what the
// model test of the slots (slots_test.go) plays with.

const modelLease = 3 * time.Second

// slotWorld is the database: TakeSlots, GiveSlots, Slots and the heartbeat as sqlbatch
// promises them, each applied at one moment of the database's clock.
type slotWorld struct {
	now    time.Duration
	owners [][16]byte
	fences []int64
	until  map[[16]byte]time.Duration
	// late are statements whose sender has given up waiting, and which run yet.
	late []func()
	// moved counts the slots that came to another owner, and lastChange is when a member
	// came, went or stood still.
	moved int
	born  int
	bell  bool // gives wake the others
	all   []*slotActor
	asked slotCounts
}

// slotCounts are statements that the database has run.
type slotCounts struct{ looks, takes, gives, beats int }

func (n slotCounts) minus(o slotCounts) slotCounts {
	return slotCounts{n.looks - o.looks, n.takes - o.takes, n.gives - o.gives, n.beats - o.beats}
}

func newSlotWorld(n int) *slotWorld {
	return &slotWorld{
		now: time.Hour, owners: make([][16]byte, n), fences: make([]int64, n), until: map[[16]byte]time.Duration{},
	}
}

func (w *slotWorld) lives(id [16]byte) bool { return w.until[id] > w.now }

func (w *slotWorld) beat(id [16]byte) {
	w.asked.beats++
	if !w.lives(id) { // it comes
		maps.DeleteFunc(w.until, func(_ [16]byte, until time.Duration) bool { return until < w.now-24*time.Hour })
	}
	w.until[id] = max(w.until[id], w.now+modelLease)
}

func (w *slotWorld) leave(id [16]byte) { delete(w.until, id) }

func (w *slotWorld) look() slotLook {
	w.asked.looks++
	l := slotLook{}
	for id := range w.until {
		if w.lives(id) {
			l.members++
		}
	}
	for i, owner := range w.owners {
		l.rows = append(l.rows, slotRow{slot: i, owner: owner, gone: !w.lives(owner), fence: w.fences[i]})
	}
	return l
}

func (w *slotWorld) take(id [16]byte, list []ownSlot) (got []ownSlot) {
	w.asked.takes++
	if !w.lives(id) {
		return nil
	}
	for _, own := range list {
		owner := w.owners[own.slot]
		if owner != [16]byte{} && owner != id && w.lives(owner) {
			continue
		}
		if owner != id {
			w.moved++
		}
		w.owners[own.slot] = id
		w.fences[own.slot]++
		got = append(got, ownSlot{own.slot, w.fences[own.slot]})
	}
	return got
}

func (w *slotWorld) give(id [16]byte, list []ownSlot) {
	w.asked.gives++
	for _, own := range list {
		if w.owners[own.slot] == id && w.fences[own.slot] == own.fence {
			w.owners[own.slot] = [16]byte{}
		}
	}
}

// slotActor is one member: its heartbeat, and its claimer, which stands still wherever a
// statement is under way.
type slotActor struct {
	world  *slotWorld
	id     [16]byte
	ahead  time.Duration // of the local clock, which may jump forward
	here   membership
	tenure *tenure

	beatBegan time.Duration // of the heartbeat under way; 0: none
	beatDone  bool          // the database has it

	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	apply  func() // of the statement under way; nil: none
	done   bool   // the database has it
	err    error  // what the claimer gets

	holds   []bool  // slotTaken, and neither drained nor gone: leases may be handed out
	fences  []int64 // of slotTaken, by which it claims
	leaving []bool
	handed  []int
	ending  bool
	dead    bool
	refused int // takes that got less than they asked for
}

var errModel = errors.New("no answer")

func (w *slotWorld) join() *slotActor {
	w.born++
	a := &slotActor{world: w, id: [16]byte{byte(w.born), byte(w.born >> 8), 1}}
	n := len(w.owners)
	a.holds, a.leaving, a.handed, a.fences = make([]bool, n), make([]bool, n), make([]int, n), make([]int64, n)
	a.here.now = func() time.Duration { return w.now + a.ahead }
	a.tenure = newTenure(n, a.id, &a.here, a, a, func() {
		for _, other := range w.all {
			if w.bell && other != a {
				other.tenure.hurry()
			}
		}
	})
	a.resume, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		for yield(struct{}{}) {
			_, _ = a.tenure.tend(context.Background(), nil)
		}
	})
	a.resume() // to its beginning
	w.all = append(w.all, a)
	return a
}

// idle says that no statement of the claimer is under way.
func (a *slotActor) idle() bool { return a.apply == nil }

// run is a statement of the claimer: the model decides when it is applied and answered, or
// whether at all.
func (a *slotActor) run(apply func()) error {
	a.apply, a.done, a.err = apply, false, nil
	a.yield(struct{}{})
	a.apply = nil
	return a.err
}

func (a *slotActor) look(context.Context, []sqlbatch.SlotPart) (l slotLook, err error) {
	err = a.run(func() { l = a.world.look() })
	return l, err
}

func (a *slotActor) take(_ context.Context, list []ownSlot) (got []ownSlot, err error) {
	err = a.run(func() { got = a.world.take(a.id, list) })
	if err == nil && len(got) < len(list) {
		a.refused++
	}
	return got, err
}

func (a *slotActor) give(_ context.Context, list []ownSlot) error {
	return a.run(func() { a.world.give(a.id, list) })
}

func (a *slotActor) slotTaken(slot int, fence int64) {
	a.holds[slot], a.leaving[slot], a.fences[slot] = true, false, fence
}

func (a *slotActor) slotLeaving(slot int) {
	a.leaving[slot] = true
	a.finish(slot, 0)
}

func (a *slotActor) slotGone(slot int) {
	a.holds[slot], a.leaving[slot], a.handed[slot] = false, false, 0
}

func (a *slotActor) handedOut(slot int) int { return a.handed[slot] }

// finish ends n handlers of a slot.
func (a *slotActor) finish(slot, n int) {
	a.handed[slot] = max(0, a.handed[slot]-n)
	if a.leaving[slot] && a.handed[slot] == 0 {
		a.holds[slot], a.leaving[slot] = false, false
		a.tenure.drained(slot)
	}
}

// fates of a step of a statement.
const (
	fateWell = iota
	fateNever
	fateLate
)

// step brings the claimer on: to its next statement, or that to the database, or the answer
// to the claimer.
func (a *slotActor) step(fate int) {
	switch {
	case a.idle():
		a.resume()
	case !a.done && fate == fateWell:
		a.apply()
		a.done = true
	case !a.done:
		if fate == fateLate {
			a.world.late = append(a.world.late, a.apply)
		}
		a.err = errModel
		a.resume()
	default:
		if fate != fateWell {
			a.err = errModel // the answer is lost
		}
		a.resume()
	}
}

// heartbeat brings the heartbeat on likewise.
func (a *slotActor) heartbeat(fate int) {
	switch {
	case a.beatBegan == 0:
		a.beatBegan, a.beatDone = a.here.now(), false
		return
	case !a.beatDone && fate == fateWell:
		a.world.beat(a.id)
		a.beatDone = true
		return
	case !a.beatDone && fate == fateLate:
		a.world.late = append(a.world.late, func() { a.world.beat(a.id) })
	case a.beatDone && fate == fateWell:
		a.here.joined(a.beatBegan, modelLease)
	}
	a.beatBegan = 0
}

// claim is a claim of all slots that the member may claim: what it leases is handed out.
// Where it fails it may run late.
func (a *slotActor) claim(fate int) {
	owned := a.tenure.owned()
	run := func() (got []int) {
		for _, own := range owned {
			if a.world.lives(a.id) && a.world.owners[own.slot] == a.id && a.world.fences[own.slot] == own.fence {
				got = append(got, own.slot)
			}
		}
		return got
	}
	switch fate {
	case fateWell:
		got := run()
		if len(got) < len(owned) {
			a.tenure.unscanned(owned[0].slot)
		}
		for _, slot := range got {
			a.handed[slot]++
		}
	case fateLate:
		a.tenure.doubt()
		a.world.late = append(a.world.late, func() { a.lateClaim(run()) })
	default:
		a.tenure.doubt()
	}
}

// lateClaim: a claim whose answer nobody waits for has leased messages of these slots. What
// its member has taken again since, it must not touch.
func (a *slotActor) lateClaim(got []int) {
	for _, slot := range got {
		for _, note := range a.tenure.slots.list(slotOurs) {
			if !a.dead && a.tenure.alive() && note.slot == slot && note.fence == a.world.fences[slot] {
				panic(fmt.Sprintf("a claim that was given up has leased of slot %d", slot))
			}
		}
	}
}

// die ends the process; its statements under way may run yet.
func (a *slotActor) die(late bool) {
	a.dead = true
	if late && a.apply != nil && !a.done {
		a.world.late = append(a.world.late, a.apply)
	}
	if late && a.beatBegan != 0 && !a.beatDone {
		a.world.late = append(a.world.late, func() { a.world.beat(a.id) })
	}
}
