package consume

import (
	"fmt"
	"math"
	"sync"

	"github.com/chanq/chanq/internal/base"
)

// Stopping consumers with ConsumerConfig.StopWhenIdle.
//
// A consumer whose claim has found nothing, while no consumer of the group holds anything, polls once more, from the beginning. If nothing
// is due, its queue is idle. The consumers stop when each queue is idle by a poll that began after the last delivery of any of them,
// because a handler of one might have sent to another.

// Group stops consumers when all of them are idle at the same time: see ConsumerConfig.IdleGroup. For example, the stages of a pipeline
// stop when no stage has anything to do.
type Group struct {
	size int

	mu      sync.Mutex // guards what follows, and idle of the members; nothing is called under it
	members []*load    // only grows
	now     uint64     // deliveries, from 1 on
}

// NewGroup makes a group of the given number of consumers. None of them stops before all were started.
func NewGroup(consumers int) *Group {
	g := &Group{}
	g.Init(consumers)
	return g
}

// Init sets the number of consumers of the zero Group, which no consumer may have joined yet.
func (i *Group) Init(consumers int) { i.size, i.now = consumers, 1 }

// idleForGood is the idle value of a consumer that has ended.
const idleForGood = math.MaxUint64

// join adds a consumer, before it starts.
func (i *Group) join(member *load) error {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.members) >= i.size {
		return fmt.Errorf("ConsumerConfig.IdleGroup: the group already has %d consumers", i.size)
	}
	i.members = append(i.members, member)
	return nil
}

// delivers records that a consumer holds leases that may be delivered. Call it after holds counts them.
func (i *Group) delivers() {
	if i == nil {
		return
	}
	i.mu.Lock()
	i.now++
	i.mu.Unlock()
}

// ended makes all consumers poll if nothing is held any more.
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

// note records that a consumer is idle by a poll that began at this time. With 0 it is not idle, because something is due, or the database
// does not answer. If all are idle then, note stops all consumers, and returns true.
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
