package limits_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// The cost of sends whose contexts end together is that of each single send, not that of all sends
// for each.
func TestSendsWhoseContextsEndTogetherEndSoon(t *testing.T) {
	testdb.Long(t) // it measures, so it needs the real clock
	const sends, bound = 50_000, testdb.Slowness * 10 * time.Second
	w := newWorld(t, testdb.SQLite)
	q := w.Queue("work", chanq.Config{})
	p := testdb.Produce(w, q, chanq.ProducerConfig{BatchRows: 10, BufferBytes: 64 << 20})
	gate := make(chan struct{})
	defer close(gate)
	w.Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if op.Kind == faultdb.Exec {
			return faultdb.Hold(gate)
		}
		return faultdb.Fault{}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range sends {
		all.Go(func() { _, _ = p.SendBatch(ctx, make([]chanq.Message[string], 2)...) })
	}
	w.Eventually("all messages are accepted", func() bool { return p.Stats().Pending == 2*sends })
	began := time.Now()
	cancel()
	all.Wait()
	require.Less(t, time.Since(began), bound)
}
