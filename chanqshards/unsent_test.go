package chanqshards

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// One shard has no tables, and the other shard rejects a message.
func TestUnsentTakesWhatNoShardCanStore(t *testing.T) {
	var reported atomic.Int64
	q := newQueue(t, 2, chanq.Config{Spec: chanq.Spec{MaxBody: 10}, Hooks: chanq.Hooks{Unsent: func(chanq.UnsentEvent) { reported.Add(1) }}})
	require.NoError(t, chanqadmin.DropWithMessages(t.Context(), q.places[1].db, "orders", chanq.Config{}, chanqadmin.Change{}))
	q.places[1].queue.Store(nil) // as after an Open during an outage of the database
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	var own []chanq.Message[string]
	for i := 0; len(own) < 4*room; i++ {
		if m := (chanq.Message[string]{Body: "a", DedupKey: fmt.Sprint(i)}); q.ShardOf(m) == 1 {
			own = append(own, m)
		}
	}

	p.C() <- own[0]
	p.C() <- chanq.Message[string]{Body: strings.Repeat("x", 11), ID: chanq.ID{15: 2}} // of shard 0
	require.ErrorContains(t, p.Flush(t.Context()), "could not be stored: 1, Unsent returns them")
	unsent := p.Unsent()
	require.Len(t, unsent, 2)
	require.ErrorIs(t, unsent[0].Err, chanq.ErrTooLarge)
	require.ErrorIs(t, unsent[1].Err, chanq.ErrNoSchema)
	require.NoError(t, p.Flush(t.Context()))
	require.Eventually(t, func() bool { return reported.Load() == 2 }, time.Minute, time.Millisecond)

	var sent atomic.Int64
	go func() { // ends when all are taken
		for _, m := range own {
			p.C() <- m
			sent.Add(1)
		}
	}()
	require.Eventually(t, func() bool { return sent.Load() >= 2*room }, time.Minute, time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	require.LessOrEqual(t, sent.Load(), int64(2*room+3), "their number is bounded")
	seen := map[string]bool{}
	require.Eventually(t, func() bool {
		for _, u := range p.Unsent() {
			seen[u.Message.DedupKey] = true
		}
		return len(seen) == len(own)
	}, time.Minute, time.Millisecond)
	require.NoError(t, p.Flush(t.Context()))
	require.NoError(t, p.Close(t.Context()))
}
