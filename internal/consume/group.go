package consume

import (
	"fmt"
	"math"
	"sync"

	"github.com/chanq/chanq/internal/base"
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

	mu      sync.Mutex // guards what follows, and idle of the members; nothing is called under it
	members []*load    // only grows
	now     uint64     // deliveries, from 1 on
}

// NewGroup makes a group of so many consumers: none of them ends before all were started.
func NewGroup(consumers int) *Group {
	g := &Group{}
	g.Init(consumers)
	return g
}

// Init makes the zero Group, to which no consumer may belong, one of so many consumers.
func (i *Group) Init(consumers int) { i.size, i.now = consumers, 1 }

// idleForGood is idle of a member that has ended.
const idleForGood = math.MaxUint64

// join adds a member, before it starts.
func (i *Group) join(member *load) error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.members) >= i.size {
		return fmt.Errorf("ConsumerConfig.IdleGroup: it has its %d consumers already", i.size)
	}
	i.members = append(i.members, member)
	return nil
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
		base.Signal(member.cleared)
	}
}

func (i *Group) all() []*load {
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

// note notes that a member is idle by a look that began at this time, 0: that it is not, since something is due there, or the database
// does not answer. It stops all consumers, and reports so, if all are idle then.
func (i *Group) note(member *load, at uint64) bool {
	i.mu.Lock()
	if member.idle != idleForGood {
		member.idle = at
	}
	all := len(i.members) == i.size
	for _, m := range i.members {
		all = all && (m.idle == i.now || m.idle == idleForGood)
	}
	members := i.members
	i.mu.Unlock()
	if all {
		for _, m := range members {
			m.halt()
		}
	}
	return all
}
