package consume

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// The end of consumers with ConsumerConfig.StopWhenIdle.
//
// A consumer whose claim has found nothing, while no consumer of the group holds anything, looks once more,
// from the beginning. If nothing is due there, its queue is idle. The consumers stop once each queue is idle
// by a look that began after the last delivery of any of them: a handler of one may have sent to another.

// Group has consumers end when all of them are idle at once: see ConsumerConfig.IdleGroup. For example
// the stages of a pipeline end when no stage has anything to do.
type Group struct {
	size int

	mu      sync.Mutex // guards what follows; nothing is called under it
	members []idler    // only grows
	now     uint64     // deliveries, from 1 on
	idle    []uint64   // of each member: now, when the look began by which it is idle
}

// NewGroup makes a group of so many consumers: none of them ends before all were started.
func NewGroup(consumers int) *Group {
	g := &Group{}
	g.Init(consumers)
	return g
}

// Init makes the zero Group, to which no consumer may belong, one of so many consumers.
func (i *Group) Init(consumers int) { i.size, i.now = consumers, 1 }

// idler is a consumer of the group.
type idler interface {
	// holds is how many leases and handlers the end has to wait for, or less than one for none.
	holds() int
	// again ends the pause of its claims.
	again()
	halt()
}

// idleForGood is idle of a member that has ended.
const idleForGood = math.MaxUint64

// join adds a member, before it starts.
func (i *Group) join(member idler) error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.members) >= i.size {
		return fmt.Errorf("ConsumerConfig.IdleGroup: it has its %d consumers already", i.size)
	}
	i.members, i.idle = append(i.members, member), append(i.idle, 0) // now begins at 1
	return nil
}

// leave notes that a member has stopped claiming.
func (i *Group) leave(member idler) {
	if i != nil {
		i.note(member, func(uint64) uint64 { return idleForGood })
	}
}

// delivers notes that a member holds leases that may be delivered. Call it when holds counts them.
func (i *Group) delivers() {
	if i == nil {
		return
	}
	i.mu.Lock()
	i.now++
	i.mu.Unlock()
}

// ended has all consumers look if nothing is held any more.
func (i *Group) ended() {
	if i == nil || i.held() {
		return
	}
	for _, member := range i.all() {
		member.again()
	}
}

func (i *Group) all() []idler {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.members
}

func (i *Group) held() bool {
	for _, member := range i.all() {
		if member.holds() > 0 {
			return true
		}
	}
	return false
}

// begin begins a look. It reports false if the look could not end the consumers, since something is held.
func (i *Group) begin() (now uint64, quiet bool) {
	i.mu.Lock()
	now = i.now // before the counts: what is delivered after them makes the look void
	i.mu.Unlock()
	return now, !i.held()
}

// isIdle notes that a look which began at now has found nothing in a member's queue. It stops all
// consumers, and reports so, if that holds for all.
func (i *Group) isIdle(member idler, now uint64) bool {
	return i.note(member, func(uint64) uint64 { return now })
}

// notIdle withdraws isIdle of a member: something is due there, or the database does not answer.
func (i *Group) notIdle(member idler) {
	i.note(member, func(at uint64) uint64 {
		if at == idleForGood {
			return at
		}
		return 0
	})
}

// note changes idle of a member, and stops all consumers, and reports so, if all are idle then.
func (i *Group) note(member idler, change func(uint64) uint64) bool {
	i.mu.Lock()
	at := slices.Index(i.members, member)
	i.idle[at] = change(i.idle[at])
	all := len(i.members) == i.size
	for _, at := range i.idle {
		all = all && (at == i.now || at == idleForGood)
	}
	members := i.members
	i.mu.Unlock()
	if all {
		for _, member := range members {
			member.halt()
		}
	}
	return all
}
