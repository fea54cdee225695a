package histories

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// steps draws steps. A step refers to leases and messages by numbers, modulo how many there are, so
// a history remains valid when shrinking removes steps.
var steps = rapid.OneOf(
	rapid.Custom(func(t *rapid.T) step {
		return &send{
			Producer: number(producers).Draw(t, "producer"),
			How:      rapid.SampledFrom([]manner{alone, batch, channel}).Draw(t, "how"),
			Messages: drafts.Draw(t, "messages"),
		}
	}),
	rapid.Custom(func(t *rapid.T) step {
		return &transaction{
			Producer: number(producers).Draw(t, "producer"),
			Acks:     rapid.SliceOfN(number(8), 0, 2).Draw(t, "acks"),
			Messages: drafts.Draw(t, "messages"),
			Commit:   rapid.Bool().Draw(t, "commit"),
		}
	}),
	rapid.Custom(func(t *rapid.T) step {
		return &giveUp{number(producers).Draw(t, "producer"), drafts.Draw(t, "messages")}
	}),
	rapid.Custom(func(t *rapid.T) step { return &consume{number(6).Draw(t, "take")} }),
	rapid.Custom(func(t *rapid.T) step {
		return &handle{1 + number(3).Draw(t, "workers"), rapid.SliceOfN(rapid.SampledFrom(endings), 1, 4).Draw(t, "endings")}
	}),
	settles, settles, settles,
	rapid.Custom(func(t *rapid.T) step {
		return &lockRow{settlings.Draw(t, "settle"), rapid.SliceOfN(settlings, 0, 3).Draw(t, "others")}
	}),
	rapid.Custom(func(t *rapid.T) step { return &extend{number(8).Draw(t, "lease"), hours(t, 1)} }),
	rapid.Custom(func(t *rapid.T) step { return &crash{number(8).Draw(t, "lease")} }),
	rapid.Custom(func(t *rapid.T) step { return &perish{1 + number(4).Draw(t, "times")} }),
	rapid.Just(step(&advance{})), rapid.Just(step(&advance{})),
	rapid.SampledFrom([]step{&pause{}, &resume{}, &resume{}}),
	rapid.Custom(func(t *rapid.T) step { return &cancel{rapid.SliceOfN(number(8), 1, 3).Draw(t, "messages")} }),
	rapid.Custom(func(t *rapid.T) step { return &redrive{number(3).Draw(t, "limit")} }),
	rapid.Custom(func(t *rapid.T) step { return &redriveIDs{rapid.SliceOfN(number(6), 1, 3).Draw(t, "messages")} }),
	rapid.Custom(func(t *rapid.T) step {
		return &purge{rapid.SampledFrom([]chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone}).Draw(t, "state")}
	}),
)

var settles = rapid.Custom(func(t *rapid.T) step {
	return &settle{rapid.SliceOfN(settlings, 1, 4).Draw(t, "settles")}
})

var settlings = rapid.Custom(func(t *rapid.T) settling {
	return settling{
		Lease: number(8).Draw(t, "lease"),
		Op:    rapid.SampledFrom([]settleOp{ack, nack, release, deadLetter}).Draw(t, "op"),
		Delay: hours(t, 0),
		Cause: rapid.SampledFrom([]string{"", "e1", "e2"}).Draw(t, "cause"),
	}
})

func number(n int) *rapid.Generator[int] { return rapid.IntRange(0, n-1) }

func hours(t *rapid.T, least int) time.Duration {
	return time.Duration(rapid.IntRange(least, 3).Draw(t, "hours")) * time.Hour
}

// draft is a message to send.
type draft struct {
	ID       int // 0: made by the producer; otherwise one of the history's IDs
	Key      int // 0: none
	Priority chanq.Priority
	Delay    time.Duration
	TTL      time.Duration // beyond the delay; 0: none
	Over     chanq.OnDuplicate
	Most     time.Duration // of Debounce, beyond the delay; below 0: the default
}

var drafts = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) draft {
	return draft{
		ID:       max(0, rapid.IntRange(-3, chosenIDs).Draw(t, "id")),
		Key:      max(0, rapid.IntRange(-3, 2).Draw(t, "key")),
		Priority: chanq.Priority(rapid.IntRange(int(chanq.PriorityLow), int(chanq.PriorityUrgent)).Draw(t, "priority")),
		Delay:    max(0, time.Duration(rapid.IntRange(-3, 2).Draw(t, "delay"))*time.Hour),
		TTL:      max(0, time.Duration(rapid.IntRange(-5, 2).Draw(t, "TTL"))*time.Hour),
		Over:     chanq.OnDuplicate(number(int(chanq.Debounce)+1).Draw(t, "on duplicate")),
		Most:     time.Duration(rapid.IntRange(-1, 1).Draw(t, "debounce max")) * time.Hour,
	}
}), 1, 4)

func (d draft) String() string {
	var b strings.Builder
	fmt.Fprint(&b, d.Priority)
	if d.ID > 0 {
		fmt.Fprintf(&b, " id%d", d.ID)
	}
	if d.Key > 0 {
		fmt.Fprintf(&b, " key%d %v", d.Key, d.Over)
	}
	if d.Delay > 0 {
		fmt.Fprintf(&b, " in %v", d.Delay)
	}
	if d.TTL > 0 {
		fmt.Fprintf(&b, " for %v", d.TTL)
	}
	return b.String()
}

// message converts a draft to a message. Its ID is zero if the producer is to make it.
func (h *history) message(d draft) chanq.Message[string] {
	h.messages++
	m := chanq.Message[string]{Body: fmt.Sprintf("m%d", h.messages), Priority: d.Priority, Delay: d.Delay}
	if d.TTL > 0 {
		m.TTL = d.Delay + d.TTL
	}
	if d.ID > 0 {
		m.ID = h.ids[d.ID-1]
	}
	if d.Key > 0 {
		m.DedupKey, m.OnDuplicate = fmt.Sprintf("key%d", d.Key), d.Over
		if d.Over == chanq.Debounce {
			m.Delay += time.Hour // it must have one
			if d.TTL > 0 {
				m.TTL += time.Hour
			}
			if d.Most >= 0 {
				m.DebounceMax = m.Delay + d.Most
			}
		}
	}
	return m
}

// compose converts drafts to messages, as many as the queue has room for.
func (h *history) compose(drafts []draft) []chanq.Message[string] {
	var ms []chanq.Message[string]
	for _, d := range drafts[:min(len(drafts), h.room())] {
		ms = append(ms, h.message(d))
	}
	return ms
}
