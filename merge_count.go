package chanq

import "sync"

// transit counts, of each shard, the leases that wait for a reader: before the merged channel, which
// is on the shard's own or in the hand of a mover, and on it. Nobody hears who is read from a channel;
// but what is on it is what was sent last. The counts may be too high while a lease is being sent.
type transit struct {
	channel func() int // how many leases are on it

	mu     sync.Mutex // guards what follows; held for moments
	before []int      // of each shard, before the channel
	on     []int      // of each shard, on the channel
	line   []uint8    // the shards of those on the channel, from gone on, in the order of their sends
	gone   int
}

// came notes that leases of a shard are before the channel, or, where n is negative, that they have
// left that place for the shard.
func (t *transit) came(shard, n int) {
	t.mu.Lock()
	t.before[shard] += n
	t.mu.Unlock()
}

// sent notes that a mover has sent a lease.
func (t *transit) sent(shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before[shard]--
	t.on[shard]++
	if len(t.line) == cap(t.line) && t.gone > len(t.line)/2 {
		t.line = t.line[:copy(t.line, t.line[t.gone:])]
		t.gone = 0
	}
	t.line = append(t.line, uint8(shard)) // of sqlbatch.MaxShards at most
}

// of returns what a shard has before the channel, and on it.
func (t *transit) of(shard int) (before, on int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := t.channel(); len(t.line)-t.gone > n; { // under the lock: nothing is noted meanwhile
		t.on[t.line[t.gone]]--
		t.gone++
	}
	return t.before[shard], t.on[shard]
}
