package chanq

import (
	"fmt"

	"github.com/chanq/chanq/sqlbatch"
)

// Kind of a queue.
type Kind uint8

// The kinds.
const (
	// KindPlain: messages come by priority, and within one about in the order in which they
	// are due. Any number of consumers take from anywhere.
	KindPlain Kind = iota
	// KindOrdered: of the messages with one Message.Key no handler gets one before the
	// one that was sent before it is acked or dead (or cancelled, or purged), for certain:
	// whatever dies meanwhile. That holds where Send, or the transaction of SendTx, had
	// returned before the Send of the second began, and for all that one goroutine sends
	// on one Producer. A message that is delivered again comes before those behind it.
	// There is neither Message.Priority nor Message.Delay.
	KindOrdered
)

func (k Kind) String() string {
	switch k {
	case KindPlain:
		return "plain"
	case KindOrdered:
		return "ordered"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// DeadKey says what becomes of the messages behind a dead one of the same key.
type DeadKey uint8

// The possibilities.
const (
	// DeadKeyOpens: the next one is delivered once the one before it is dead.
	DeadKeyOpens DeadKey = iota
	// DeadKeyHolds: the key stays closed until none of its messages is dead any more, because
	// somebody redrove, discarded or purged them.
	DeadKeyHolds
)

const (
	defaultSlots = 64
	mostKeys     = 1_000_000
)

// checkOrder checks and completes what is for ordered queues.
func (c *Config) checkOrder(v *validator) {
	switch {
	case c.Kind > KindOrdered:
		v.wrong("Config.Kind is %d: must be KindPlain (%d, the default) or KindOrdered (%d)", c.Kind, KindPlain, KindOrdered)
		return
	case c.Kind == KindPlain:
		for _, f := range []struct {
			name  string
			value int
		}{{"Slots", c.Slots}, {"MaxKeys", c.MaxKeys}, {"DeadKey", int(c.DeadKey)}} {
			if f.value != 0 {
				v.wrong("Config.%s is %d: it is for ordered queues, set Config.Kind to KindOrdered", f.name, f.value)
			}
		}
		return
	}
	v.limit("Config.Slots", &c.Slots, defaultSlots, 1, sqlbatch.MaxSlots)
	if c.MaxKeys != 0 && (c.MaxKeys < c.Slots || c.MaxKeys > mostKeys) {
		v.wrong("Config.MaxKeys is %d: must be 0 (no limit) or from Slots, %d, to %d", c.MaxKeys, c.Slots, mostKeys)
	}
	if c.DeadKey > DeadKeyHolds {
		v.wrong("Config.DeadKey is %d: must be DeadKeyOpens (%d, the default) or DeadKeyHolds (%d)", c.DeadKey, DeadKeyOpens, DeadKeyHolds)
	}
}

// keysOf is how many keys of a slot may be in work at once; 0 is no limit. The parts of all
// slots are MaxKeys together.
func (c *Config) keysOf(slot int) int {
	if c.MaxKeys == 0 {
		return 0
	}
	n := c.MaxKeys / c.Slots
	if slot < c.MaxKeys%c.Slots {
		n++
	}
	return n
}

// names says which tables a queue has.
func (c *Config) names(queue string) sqlbatch.Names {
	return sqlbatch.Names{Schema: c.Schema, Queue: queue, Slots: c.Slots, Holds: c.DeadKey == DeadKeyHolds}
}
