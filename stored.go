package chanq

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// What the database keeps of a queue: its kind, its slots, what a dead message does to its key, and which shard it is.

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

func (d DeadKey) String() string {
	switch d {
	case DeadKeyOpens:
		return "opens"
	case DeadKeyHolds:
		return "holds"
	}
	return fmt.Sprintf("DeadKey(%d)", uint8(d))
}

// ShardMark is what the tables of a shard remember: that they are shard Index, from 0, of
// Count (at most 256), all of which have the same Set.
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
		return "a queue by itself"
	}
	return fmt.Sprintf("shard %d of %d, of the set %s", m.Index, m.Count, m.Set)
}

// stored is what the database says of a queue.
type stored struct {
	version int
	slots   int
	holds   int
	shard   ShardMark
}

func (s stored) kind() Kind {
	if s.slots > 0 {
		return KindOrdered
	}
	return KindPlain
}

func (s stored) deadKey() DeadKey {
	if s.holds != 0 {
		return DeadKeyHolds
	}
	return DeadKeyOpens
}

// differs says why the tables of a queue are not those of Config, whose Slots are 0 for
// any number.
func (s stored) differs(c *Config, slots int) error {
	switch {
	case s.kind() != c.Kind && s.slots > 0:
		return fmt.Errorf("%w: Config.Kind is %v, and the database says ordered, of %d slots; set Config.Kind to KindOrdered", ErrKind, c.Kind, s.slots)
	case s.kind() != c.Kind:
		return fmt.Errorf("%w: Config.Kind is %v, and the database says plain; a queue's kind cannot be changed: leave Config.Kind unset, or migrate a queue of another name", ErrKind, c.Kind)
	case slots != 0 && slots != s.slots:
		return fmt.Errorf("%w: Config.Slots is %d, and the database says %d, which cannot be changed; leave Config.Slots unset", ErrKind, slots, s.slots)
	}
	return s.shard.isNot(c.Shard)
}

// isNot returns why tables with this mark are not those that a program wants, whose Set is zero for any, or
// nil.
func (m ShardMark) isNot(wanted ShardMark) error {
	switch {
	case m.Index == wanted.Index && m.Count == wanted.Count && (wanted.Set.IsZero() || m.Set == wanted.Set):
		return nil
	case wanted.Count == 0:
		return fmt.Errorf("%w: the database says: %v; open all shards with chanqshards.Open, or this one with the Config that StoredConfig returns", ErrShards, m)
	case m.Count == 0:
		return fmt.Errorf("%w: the database says: %v; it is no shard, and cannot become one: migrate shards of another name, and drain it into them", ErrShards, m)
	}
	wants := fmt.Sprintf("shard %d of %d", wanted.Index, wanted.Count)
	if !wanted.Set.IsZero() {
		wants = wanted.String()
	}
	return fmt.Errorf("%w: this program takes it for %s, and the database says: %v; give the shards that were migrated, all of them, in their order", ErrShards, wants, m)
}

// stored asks the database of a queue; the version is 0 where there are no tables. One
// round trip, by run.
func (q *queue) stored(run runner) (s stored, err error) {
	var row table.Stored
	err = run(q.sql.Version(), row.Scan)
	s = stored{version: row.Version, slots: row.Slots, holds: row.Holds, shard: ShardMark{Index: row.ShardIndex, Count: row.ShardCount}}
	if err == nil && row.ShardCount > 0 {
		s.shard.Set, err = ParseID(row.ShardSet)
	}
	if err != nil && q.classify(err) == sqlbatch.NoSchema {
		return stored{}, nil
	}
	return s, err
}

// adopt takes the kind, the slots, the dead keys and the shard of the database for Config's.
func (q *queue) adopt(s stored) error {
	q.cfg.Kind, q.cfg.Slots, q.cfg.DeadKey, q.cfg.Shard = s.kind(), s.slots, s.deadKey(), s.shard
	q.table.Ordered = q.ordered()
	q.render()
	v := validator{}
	q.cfg.checkOrder(&v)
	return v.err()
}

// StoredConfig returns cfg with what the database keeps of it for a queue, Kind, Slots,
// DeadKey and Shard, and with its Dialect. It is for programs that operate queues whatever their kind is; others give to Open
// what they gave to Migrate. One round trip; ErrNoSchema where there is no such queue.
func StoredConfig(ctx context.Context, db *sql.DB, queue string, cfg Config) (Config, error) {
	plain := cfg
	plain.Kind, plain.Slots, plain.MaxKeys, plain.DeadKey, plain.Shard = KindPlain, 0, 0, DeadKeyOpens, ShardMark{}
	q, err := newQueue("open", db, queue, plain)
	if err != nil {
		return cfg, err
	}
	found, err := q.stored(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return q.once(ctx, st, scan) })
	if err == nil && found.version == 0 {
		err = &unfitError{fmt.Errorf("%w: there is no such queue; run chanq.Migrate, or the command: chanq migrate %s", ErrNoSchema, queue)}
	}
	if err != nil {
		return cfg, &OpError{Op: "open", Queue: q.label, Err: q.unanswered(err)}
	}
	cfg.Dialect, cfg.Kind, cfg.Slots, cfg.DeadKey, cfg.Shard = q.dialect, found.kind(), found.slots, found.deadKey(), found.shard
	return cfg, nil
}
