package chanq

import (
	"fmt"
	"hash/crc32"
	"math"

	"github.com/chanq/chanq/sqlbatch"
)

// What a queue knows of others: its tables may say that it is one of the shards of a queue over several
// databases. Then it refuses the messages of the others. Package chanqshards does the rest.

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

// ShardOf returns the index of the shard, of so many, to which a message belongs by its Key, or else its
// DedupKey, or else its ID. It is -1 if the message has none of them: then it may go to any. Package
// chanqshards uses it, and each shard refuses the messages of others. Programs in other languages must
// compute the same: CRC-32 (IEEE) of the key, or the last two bytes of the ID, modulo shards.
//
// The hash is not that of slots, whose low bits are those of any FNV: each shard would have keys in some of
// its slots only.
func ShardOf[T any](m Message[T], shards int) int {
	key := m.Key
	if key == "" {
		key = m.DedupKey
	}
	switch {
	case key != "":
		return int(crc32.ChecksumIEEE([]byte(key)) % uint32(max(shards, 1)))
	case m.ID.IsZero():
		return -1
	}
	return (int(m.ID[14])<<8 | int(m.ID[15])) % max(shards, 1)
}

// newID makes an ID that names this shard, if the queue is one.
func (q *queue) newID() ID {
	id, mark := NewID(), q.cfg.Shard
	if mark.Count > 1 {
		tail := int(id[14])<<8 | int(id[15])
		if tail += mark.Index - tail%mark.Count; tail > math.MaxUint16 {
			tail -= mark.Count
		}
		id[14], id[15] = byte(tail>>8), byte(tail)
	}
	return id
}

func (q *queue) wrongShard(i int) error {
	return fmt.Errorf("by its Key, DedupKey or ID the message belongs to shard %d, and %s is shard %d; see ShardOf", i, q.label, q.cfg.Shard.Index)
}
