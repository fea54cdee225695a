package chanq

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A crowd is many processes that join, leave and die all the time, against the model of the
// database (slots_model_test.go). For as many as one likes, as long as one likes:
//
//	go test -run TestACrowd -v -count=1 -crowd.members 1000 -crowd.for 10m -crowd.seed 7 .
var (
	crowdMembers = flag.Int("crowd.members", 150, "processes of a crowd, about")
	crowdSlots   = flag.Int("crowd.slots", 64, "slots of the queue of a crowd")
	crowdFor     = flag.Duration("crowd.for", 30*time.Second, "how long a crowd comes and goes, by the model's clock")
	crowdSeed    = flag.Uint64("crowd.seed", 1, "of a crowd's fate")
)

// crowd counts what a world's members ask, and for how long slots have nobody.
type crowd struct {
	*slotWorld
	random  *rand.Rand
	free    []time.Duration // since when a slot has nobody who may claim of it; 0: somebody does
	gaps    []time.Duration // those that have ended
	peak    int             // rows of the table of members
	comings [3]int          // that joined, left in order, died
}

// tick is a tick of the world, and a look at every slot.
func (c *crowd) tick(t *testing.T) {
	c.slotWorld.tick()
	c.oneHolder(t)
	held := make([]bool, len(c.owners))
	for _, a := range c.living() {
		if a.tenure.alive() {
			for _, own := range a.tenure.slots.list(slotOurs) {
				held[own.slot] = held[own.slot] || own.fence == c.fences[own.slot]
			}
		}
	}
	for slot, held := range held {
		switch {
		case !held && c.free[slot] == 0:
			c.free[slot] = c.now
		case held && c.free[slot] > 0:
			c.gaps, c.free[slot] = append(c.gaps, c.now-c.free[slot]), 0
		}
	}
	c.peak = max(c.peak, len(c.until))
	c.all = slices.DeleteFunc(c.all, func(a *slotActor) bool { // or the model grows
		if a.dead {
			a.stop()
		}
		return a.dead
	})
}

// fate has somebody join, leave in order or die.
func (c *crowd) fate(members int) {
	living := c.living()
	switch what := c.random.IntN(4); {
	case len(living) < members-members/10 || what < 2 && len(living) < members+members/10:
		c.join()
		c.comings[0]++
	case what%2 == 0:
		if a := living[c.random.IntN(len(living))]; !a.ending {
			a.ending = true
			a.tenure.leave()
			c.comings[1]++
		}
	default:
		living[c.random.IntN(len(living))].die(c.random.IntN(2) == 0)
		c.comings[2]++
	}
}

// run is a stretch of time, with somebody's fate each so often; 0: nobody's.
func (c *crowd) run(t *testing.T, d, each time.Duration) {
	next := c.now + each
	for end := c.now + d; c.now < end; {
		for ; each > 0 && next <= c.now; next += each {
			c.fate(*crowdMembers)
		}
		c.tick(t)
	}
}

func TestACrowdOfProcessesThatComeAndGoHasEverySlotAtWork(t *testing.T) {
	c := &crowd{slotWorld: newSlotWorld(*crowdSlots), random: rand.New(rand.NewPCG(*crowdSeed, 1)), free: make([]time.Duration, *crowdSlots)}
	defer c.stop()
	tell := func(what string, before slotCounts, d time.Duration) {
		n, s := c.asked.minus(before), d.Seconds()
		slices.Sort(c.gaps)
		gaps := "no slot was without an owner"
		if len(c.gaps) > 0 {
			gaps = fmt.Sprintf("%d times a slot without an owner: median %v, longest %v", len(c.gaps), c.gaps[len(c.gaps)/2], c.gaps[len(c.gaps)-1])
		}
		t.Logf("%s, %v: a second %.0f looks, %.1f takes, %.1f gives, %.0f heartbeats; %s; rows of members at most %d; joined, left, died: %v",
			what, d, float64(n.looks)/s, float64(n.takes)/s, float64(n.gives)/s, float64(n.beats)/s, gaps, c.peak, c.comings)
		c.gaps, c.comings = nil, [3]int{}
	}

	began := c.now
	for i := range *crowdMembers { // within two seconds, as a deployment starts them
		c.join()
		if i%max(1, *crowdMembers/40) == 0 {
			c.tick(t)
		}
	}
	c.settle(t, rounds)
	tell(fmt.Sprintf("%d processes come, and have settled", *crowdMembers), slotCounts{}, c.now-began)

	before := c.asked
	c.run(t, 10*time.Second, 0)
	tell("nothing happens", before, 10*time.Second)

	// A tenth of them each ten seconds.
	before = c.asked
	c.run(t, *crowdFor, 100*time.Second/time.Duration(*crowdMembers))
	if len(c.gaps) > 0 {
		require.LessOrEqual(t, slices.Max(c.gaps), modelLease+2*time.Second, "the slots of one that has died")
	}
	tell("they come and go", before, *crowdFor)
	require.LessOrEqual(t, len(c.until), len(c.living())+c.born, "a row for each that was there")

	before, began = c.asked, c.now
	for _, a := range c.living()[*crowdMembers/4:] { // a deployment that ends badly
		a.die(false)
	}
	c.settle(t, modelLease+slotsPatience+rounds)
	tell("three of four have died at once", before, c.now-began)
}
