package chanq

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"time"
)

// To which shard a message goes.
//
// What has a Key, a DedupKey or an ID of its own must meet those that have the same: its
// shard follows from that, and is written down in docs/shards.md, since other programs must
// come to the same one. The rest may go anywhere: to the shard that has the least to store.
// Its ID is made so that it names the shard, where a repeated Send finds it.

// shardOf is the shard, of n, that follows from what a message has. fixed says that a Key
// or DedupKey decides; else it is the ID. The hash is not that of slots (sqlbatch.SlotOf),
// whose low bits are those of any FNV: each shard would have keys in some of its slots only.
func shardOf(key, dedupKey string, id ID, n int) (shard int, fixed bool) {
	switch {
	case n < 2:
		return 0, false
	case key == "":
		key = dedupKey
	}
	if key == "" {
		return (int(id[14])<<8 | int(id[15])) % n, false
	}
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(n)), true
}

// ShardOf returns the index of the shard, of so many, to which a message belongs by its Key, or else its
// DedupKey, or else its ID. It is -1 if the message has none of them: then it may go to any. Package
// chanqshards uses it, and each shard refuses the messages of others. Programs in other languages must
// compute the same: CRC-32 (IEEE) of the key, or the last two bytes of the ID, modulo shards.
func ShardOf[T any](m Message[T], shards int) int {
	if m.Key == "" && m.DedupKey == "" && m.ID.IsZero() {
		return -1
	}
	i, _ := shardOf(m.Key, m.DedupKey, m.ID, shards)
	return i
}

// newID makes an ID that names this shard.
func (q *queue) newID() ID {
	id := NewID()
	if q.of > 1 {
		tail := int(id[14])<<8 | int(id[15])
		if tail += q.index - tail%q.of; tail > math.MaxUint16 {
			tail -= q.of
		}
		id[14], id[15] = byte(tail>>8), byte(tail)
	}
	return id
}

func (q *queue) wrongShard(i int) error {
	return fmt.Errorf("by its Key, DedupKey or ID the message belongs to shard %d, and this is %d, %s; use Queue.Shard(Queue.ShardOf(message))", i, q.index, q.shard)
}

// ShardOf is the index of the shard to which a message belongs by its Key, DedupKey or ID,
// for SendTx on Queue.Shard; of one that has none of these it is -1: any. It is 0 where the
// queue has no shards. It asks nobody.
func (q *Queue[T]) ShardOf(m Message[T]) int {
	i, fixed := shardOf(m.Key, m.DedupKey, m.ID, len(q.shards))
	if !fixed && m.ID.IsZero() && len(q.shards) > 1 {
		return -1
	}
	return i
}

// spread chooses for messages that may go to any shard. It is safe for concurrent use.
type spread struct {
	mu    sync.Mutex // guards what follows
	last  int
	left  int           // single messages that may follow the last one
	until time.Duration // of monotonic: as long they may
}

// least chooses the shard with the least load, of equals the next one in turn.
func (s *spread) least(loads []int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := (s.last + 1) % len(loads)
	for i := range loads {
		if i = (s.last + 1 + i) % len(loads); loads[i] < loads[best] {
			best = i
		}
	}
	s.last = best
	return best
}

// again reports whether a single message may go where the one before it went: those that
// come together are to share a statement.
func (s *spread) again(now time.Duration) (shard int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	return s.last, s.left >= 0 && now < s.until
}

// begin lets rows single messages follow, for a time.
func (s *spread) begin(rows int, until time.Duration) {
	s.mu.Lock()
	s.left, s.until = rows, until
	s.mu.Unlock()
}

// load is how much a shard has to store. One that is away has no end of it; but where nothing
// tries whether it is back, the next message does.
func (p *shardProducer[T]) load() int {
	open := p.backlog.Open()
	if open > 0 && p.health.away() {
		return math.MaxInt
	}
	return open
}

// leastLoaded chooses a shard. parts are the messages that are to go to each besides; nil: none.
func (p *Producer[T]) leastLoaded(parts [][]int) int {
	loads := make([]int, len(p.shards))
	for i, shard := range p.shards {
		loads[i] = shard.load()
		if parts != nil && loads[i] < math.MaxInt {
			loads[i] += len(parts[i])
		}
	}
	return p.spread.least(loads)
}

// shardFor is the shard of a single message.
func (p *Producer[T]) shardFor(m *Message[T]) *shardProducer[T] {
	i, fixed := shardOf(m.Key, m.DedupKey, m.ID, len(p.shards))
	if fixed || !m.ID.IsZero() {
		return p.shards[i]
	}
	now := monotonic()
	if i, ok := p.spread.again(now); ok {
		return p.shards[i]
	}
	i = p.leastLoaded(nil)
	p.spread.begin(p.shards[i].cfg.BatchRows-1, now+p.shards[i].cfg.Linger)
	return p.shards[i]
}

// send stores messages in the shards where they belong, and waits for them.
func (p *Producer[T]) send(ctx context.Context, ms []Message[T]) ([]Receipt, error) {
	switch {
	case len(p.shards) == 1:
		return p.shards[0].send(ctx, ms)
	case len(ms) == 1:
		return p.shardFor(&ms[0]).send(ctx, ms)
	}
	var parts []*sendPart[T]
	for i, at := range p.divide(ms) {
		if len(at) == 0 {
			continue
		}
		those := make([]Message[T], len(at))
		for j := range at {
			those[j] = ms[at[j]]
		}
		part := &sendPart[T]{shard: p.shards[i], at: at}
		part.call, part.items = part.shard.encodeAll(those)
		parts = append(parts, part)
	}
	_ = together(parts, func(part *sendPart[T]) error { // part has what became of it
		part.receipts, part.err = part.shard.sendEncoded(ctx, part.call, part.items)
		return nil
	})
	receipts, errs, failed := make([]Receipt, len(ms)), make([]error, len(ms)), false
	for _, part := range parts {
		batch := (*BatchError)(nil)
		errors.As(part.err, &batch)
		for j, at := range part.at {
			receipts[at] = part.receipts[j]
			if batch != nil {
				errs[at] = batch.Errs[j]
			}
		}
		failed = failed || batch != nil
	}
	if !failed {
		return receipts, nil
	}
	return receipts, &BatchError{Op: "send", Errs: errs}
}

// sendPart is what goes to one shard of the messages of a SendBatch.
type sendPart[T any] struct {
	shard    *shardProducer[T]
	at       []int // where they are among all
	call     *sendCall
	items    []pending[T]
	receipts []Receipt
	err      error
}

// divide says which of the messages, by their places in ms, go to each shard. Of those that
// may go anywhere a statement's worth goes to one.
func (p *Producer[T]) divide(ms []Message[T]) [][]int {
	parts := make([][]int, len(p.shards))
	any, left := 0, 0
	for at := range ms {
		m := &ms[at]
		i, fixed := shardOf(m.Key, m.DedupKey, m.ID, len(p.shards))
		if !fixed && m.ID.IsZero() {
			if left == 0 {
				any = p.leastLoaded(parts)
				left = p.shards[any].cfg.BatchRows
			}
			left--
			i = any
		}
		parts[i] = append(parts[i], at)
	}
	return parts
}
