package chanq

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkWithHistory compares the throughput of a queue with and without the history, alternately.
// ratio is messages per second with it, divided by those without. A sample is taken every half second,
// which is twenty times as often as in a program.
func BenchmarkWithHistory(b *testing.B) {
	onEngines(b, func(b *testing.B, open opener) {
		var without, with float64
		for b.Loop() {
			without += throughput(b, open, HistoryOff)
			with += throughput(b, open, HistoryKept)
		}
		b.ReportMetric(with/without, "ratio")
		b.ReportMetric(with/float64(b.N), "msgs/s")
	})
}

// throughput returns the messages per second that pass through a new queue, for two seconds.
func throughput(b *testing.B, open opener, h History) float64 {
	b.Helper()
	db := open(b)
	cfg := Config{History: h, Durability: DurabilityAsIs}
	require.NoError(b, Migrate(b.Context(), db, "orders", cfg))
	q, err := Open[string](b.Context(), db, "orders", cfg)
	require.NoError(b, err)
	q.core.recorder.Every = 500 * time.Millisecond
	p, err := q.Producer(context.Background(), ProducerConfig{})
	require.NoError(b, err)
	c, err := q.Consume(context.Background(), ConsumerConfig{})
	require.NoError(b, err)
	var handled atomic.Int64
	ended := make(chan error, 1)
	go func() { // ends with Shutdown
		ended <- c.Handle(8, func(context.Context, *Lease[string]) error { handled.Add(1); return nil })
	}()
	start := time.Now()
	batch := make([]Message[string], 500)
	for time.Since(start) < 2*time.Second {
		_, err := p.SendBatch(b.Context(), batch...)
		require.NoError(b, err)
	}
	rate := float64(handled.Load()) / time.Since(start).Seconds()
	require.NoError(b, p.Close(b.Context()))
	require.NoError(b, c.Shutdown(b.Context()))
	require.NoError(b, <-ended)
	return rate
}
