package chanq

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// What the database stores for a queue: its Spec and its shard. open.go reads and writes them.

// Spec is what the database stores for a queue, so it is the same in all programs. Migrate stores it. Open uses the
// stored value for each zero field, and returns ErrSpec if another differs. chanqadmin.Queue.Configure changes it while
// programs run: consumers, and producers on their Queue, adopt it with the next heartbeat, within a third of
// ConsumerConfig.LeaseFor.
type Spec struct {
	// Kind of the queue: plain, or ordered, which delivers the messages of each Message.Key in the order of their
	// sends. It cannot be changed. Default: KindPlain.
	Kind Kind
	// Slots is the number of slots of an ordered queue. Each key belongs to one slot, by its hash, and each slot to one
	// consumer at a time, so more consumers than slots have no work. When a consumer dies, its slots wait until its
	// lease has expired. You cannot change Slots. Default: 64. Range: 1 to 1024.
	Slots int
	// MaxKeys is the most keys of an ordered queue that the handlers of all processes process simultaneously. Each slot
	// has a part of it. Default: UnlimitedKeys. Range: Slots to 1,000,000, or UnlimitedKeys.
	MaxKeys int
	// DeadKey controls whether an ordered queue delivers the messages behind a dead one of the same key. Default:
	// DeadKeyOpens.
	DeadKey DeadKey
	// MaxAttempts is the number of failed attempts after which a message is dead-lettered. An expired lease does not
	// count: see Config.MaxCrashes. Default: 20. Range: 1 to 1,000,000, or UnlimitedAttempts.
	MaxAttempts int
	// MaxBody is the most bytes of an encoded body. A send of a larger one returns ErrTooLarge. Default: 1 MiB. Range:
	// 1 byte to 32 MiB.
	MaxBody int
	// Retain is how long acked messages are kept in the done table. If you sent an ID several times, the last one is
	// kept, on SQL Server all. Default: RetainNone. Range: 1 ms to 100 years, or RetainNone.
	Retain time.Duration
	// RetainDead is how long dead messages are kept. With DeadKeyHolds it must be RetainAll, because deleting one would
	// open its key. Default: RetainAll. Range: 1 ms to 100 years, or RetainAll.
	RetainDead time.Duration
}

// Values of a Spec for none or no limit. 0 means the stored value or the default.
const (
	// UnlimitedAttempts is a Spec.MaxAttempts: no failed attempt is the last.
	UnlimitedAttempts = -1
	// UnlimitedKeys is a Spec.MaxKeys.
	UnlimitedKeys = -1
	// RetainNone is a Spec.Retain: acked messages are deleted.
	RetainNone time.Duration = -1
	// RetainAll is a Spec.RetainDead: dead messages are kept until an operator redrives or purges them.
	RetainAll time.Duration = -1
)

// Kind of a queue.
type Kind uint8

// The kinds. The zero value means the stored one.
const (
	// KindPlain: messages are delivered by priority, and within a priority about in the order in which they are due.
	KindPlain Kind = iota + 1
	// KindOrdered: no handler gets a message before the previous one with its Message.Key is acked or dead (or
	// cancelled, or purged), even when processes die. One message precedes another if its Send had returned, or its
	// transaction had committed, before you sent the other; if it comes first in one Send; or if one goroutine sent it
	// first on one Producer. See docs/guides/order.md.
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

// DeadKey controls whether messages behind a dead one of the same key are delivered.
type DeadKey uint8

// The values of DeadKey. The zero value means the stored one.
const (
	// DeadKeyOpens: the next message is delivered once the previous one is dead.
	DeadKeyOpens DeadKey = iota + 1
	// DeadKeyHolds: the key stays closed until an operator has redriven, discarded or purged all its dead messages.
	DeadKeyHolds
)

func (d DeadKey) String() string {
	switch d {
	case DeadKeyOpens:
		return "opens"
	case DeadKeyHolds:
		return "holds"
	}
	return fmt.Sprintf("DeadKey(%d)", uint8(d))
}

const (
	defaultSlots    = 64
	mostKeys        = 1_000_000
	mostAttempts    = 1_000_000
	leastRetention  = time.Millisecond
	defaultAttempts = 20
	defaultMaxBody  = 1 << 20
)

// check checks the range of each field.
func (s Spec) check(v *validator) {
	if s.Kind > KindOrdered {
		v.wrong("Spec.Kind is %d: must be 0 (the stored value, or KindPlain), KindPlain (%d) or KindOrdered (%d)",
			s.Kind, KindPlain, KindOrdered)
	}
	within(v, "Slots", s.Slots, 1, sqlbatch.MaxSlots, "")
	within(v, "MaxKeys", s.MaxKeys, 1, mostKeys, "UnlimitedKeys")
	if s.DeadKey > DeadKeyHolds {
		v.wrong("Spec.DeadKey is %d: must be 0 (the stored value, or DeadKeyOpens), DeadKeyOpens (%d) or "+
			"DeadKeyHolds (%d)", s.DeadKey, DeadKeyOpens, DeadKeyHolds)
	}
	within(v, "MaxAttempts", s.MaxAttempts, 1, mostAttempts, "UnlimitedAttempts")
	within(v, "MaxBody", s.MaxBody, 1, sqlbatch.MaxBody, "")
	within(v, "Retain", s.Retain, leastRetention, sqlbatch.MaxDelay, "RetainNone")
	within(v, "RetainDead", s.RetainDead, leastRetention, sqlbatch.MaxDelay, "RetainAll")
}

// within checks the bounds of a field that is not zero. none is the name of its value -1, or "" if it has none.
func within[N int | time.Duration](v *validator, field string, value, low, high N, none string) {
	if value == 0 || value >= low && value <= high || value == -1 && none != "" {
		return
	}
	if none != "" {
		none = ", or " + none
	}
	v.wrong("Spec.%s is %v: must be 0 (the stored value, or the default) or from %v to %v%s", field, value, low, high,
		none)
}

// whole returns the Spec with durations rounded up to milliseconds, as they are stored.
func (s Spec) whole() Spec {
	for _, d := range []*time.Duration{&s.Retain, &s.RetainDead} {
		if *d > 0 {
			*d = (*d + time.Millisecond - 1).Truncate(time.Millisecond)
		}
	}
	return s
}

// over returns the Spec with the values of stored for its zero fields.
func (s Spec) over(stored Spec) Spec {
	fields, from := reflect.ValueOf(&s).Elem(), reflect.ValueOf(stored)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			fields.Field(i).Set(from.Field(i))
		}
	}
	return s
}

// complete returns the Spec with the defaults of its kind, or an error for fields that conflict.
func (s Spec) complete() (Spec, error) {
	s = s.over(Spec{Kind: KindPlain, MaxAttempts: defaultAttempts, MaxBody: defaultMaxBody, Retain: RetainNone,
		RetainDead: RetainAll})
	v := validator{}
	if s.Kind == KindOrdered {
		s = s.over(Spec{Slots: defaultSlots, MaxKeys: UnlimitedKeys, DeadKey: DeadKeyOpens})
		if s.MaxKeys != UnlimitedKeys && s.MaxKeys < s.Slots {
			v.wrong("Spec.MaxKeys is %d: must be UnlimitedKeys or at least Slots, which is %d", s.MaxKeys, s.Slots)
		}
		if s.DeadKey == DeadKeyHolds && s.RetainDead != RetainAll {
			v.wrong("Spec.RetainDead is %v: must be RetainAll, since DeadKey is DeadKeyHolds, and to delete a dead "+
				"message would open its key", s.RetainDead)
		}
		return s, v.err()
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"Slots", s.Slots}, {"MaxKeys", s.MaxKeys}, {"DeadKey", int(s.DeadKey)}} {
		if f.value != 0 {
			v.wrong("Spec.%s is set: leave it unset, unless Spec.Kind is KindOrdered", f.name)
		}
	}
	return s, v.err()
}

// differs returns ErrSpec if a field that is not zero differs from the stored one. If fixed is set, it
// compares only the fields that cannot be changed.
func (s Spec) differs(stored Spec, fixed bool) error {
	given, has := reflect.ValueOf(s), reflect.ValueOf(stored)
	for i := range given.NumField() {
		name := given.Type().Field(i).Name
		permanent := name == "Kind" || name == "Slots"
		if given.Field(i).IsZero() || given.Field(i).Equal(has.Field(i)) || fixed && !permanent {
			continue
		}
		remedy := "leave the field unset, or change the queue by chanq.Migrate, chanqadmin.Queue.Configure, or the " +
			"command: chanq configure"
		if permanent {
			remedy = "it cannot be changed: leave the field unset, migrate another queue, or drop an empty one"
		}
		return fmt.Errorf("%w: Spec.%s is %s, and the database has %s; %s", ErrSpec,
			name, specText(name, given.Field(i).Interface()), specText(name, has.Field(i).Interface()), remedy)
	}
	return nil
}

// specText returns the value of a field for an error.
func specText(field string, value any) string {
	switch {
	case value == UnlimitedAttempts:
		return "unlimited"
	case value == RetainNone && field == "Retain":
		return "RetainNone"
	case value == RetainAll:
		return "RetainAll"
	}
	return fmt.Sprint(value)
}

// policy returns the part of a complete Spec that can be changed.
func (s Spec) policy() sqlbatch.Policy {
	return sqlbatch.Policy{
		Holds: s.DeadKey == DeadKeyHolds, MaxKeys: max(0, s.MaxKeys), MaxAttempts: max(0, s.MaxAttempts),
		MaxBody: s.MaxBody,
		Retain:  max(0, s.Retain), RetainDead: max(0, s.RetainDead),
	}
}

// specOf returns the stored Spec of a queue.
func specOf(slots int, p sqlbatch.Policy) Spec {
	s := Spec{
		Kind: KindPlain, MaxAttempts: cmp.Or(p.MaxAttempts, UnlimitedAttempts), MaxBody: p.MaxBody,
		Retain: cmp.Or(p.Retain, RetainNone), RetainDead: cmp.Or(p.RetainDead, RetainAll),
	}
	if slots > 0 {
		s.Kind, s.Slots, s.MaxKeys, s.DeadKey = KindOrdered, slots, cmp.Or(p.MaxKeys, UnlimitedKeys), DeadKeyOpens
		if p.Holds {
			s.DeadKey = DeadKeyHolds
		}
	}
	return s
}

// ShardMark is the identity of a shard that its tables store: shard Index, from 0 to Count - 1, of the Count shards (at
// most 256) with the same Set.
type ShardMark struct {
	Index int `json:"index"`
	Count int `json:"count"` // 0: the queue has no shards
	Set   ID  `json:"set"`
}

// check checks the mark of a Config.
func (m ShardMark) check(v *validator) {
	switch {
	case m.Count == 0 && m != ShardMark{}:
		v.wrong("Config.Shard.Count is 0: must be the number of shards, where Index or Set is given")
	case m.Count < 0 || m.Count > sqlbatch.MaxShards:
		v.wrong("Config.Shard.Count is %d: must be from 0 (the queue has no shards) to %d", m.Count, sqlbatch.MaxShards)
	case m.Count > 0 && (m.Index < 0 || m.Index >= m.Count):
		v.wrong("Config.Shard.Index is %d: must be from 0 to %d, since Count is %d", m.Index, m.Count-1, m.Count)
	}
}

func (m ShardMark) String() string {
	if m.Count == 0 {
		return "a queue without shards"
	}
	return fmt.Sprintf("shard %d of %d, of the set %s", m.Index, m.Count, m.Set)
}

// isNot returns an error if tables with this mark do not match wanted. A zero Set in wanted matches any Set.
func (m ShardMark) isNot(wanted ShardMark) error {
	switch {
	case m.Index == wanted.Index && m.Count == wanted.Count && (wanted.Set.IsZero() || m.Set == wanted.Set):
		return nil
	case wanted.Count == 0:
		return fmt.Errorf("%w: the database has %v: open all shards with chanqshards.Open, or this one with the "+
			"Config that StoredConfig returns", ErrShards, m)
	case m.Count == 0:
		return fmt.Errorf("%w: the database has %v, which cannot become a shard: migrate shards with another name, "+
			"and drain this queue into them", ErrShards, m)
	}
	wants := fmt.Sprintf("shard %d of %d", wanted.Index, wanted.Count)
	if !wanted.Set.IsZero() {
		wants = wanted.String()
	}
	return fmt.Errorf("%w: this program expects %s, and the database has %v: give all shards that were migrated, in "+
		"their order", ErrShards, wants, m)
}
