package chanq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/chanq/chanq/internal/table"
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
	return sqlbatch.Names{Schema: c.Schema, Queue: queue, Slots: c.Slots, Holds: c.DeadKey == DeadKeyHolds, Shard: c.Shard.Index, Shards: c.Shard.Count, ShardSet: c.Shard.Set}
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

// errNotOrdered: the dialect has no statements for ordered queues.
func errNotOrdered(d sqlbatch.Dialect) error {
	return errors.New("Config.Kind is KindOrdered: there are no ordered queues on " + d.Name() + " yet")
}
