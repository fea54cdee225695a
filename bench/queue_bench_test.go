package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// Every operation of these benchmarks is one message, so that ns/op and allocs/op are per message.
// They also report statements/msg and cpu-ns/msg. Use a count that fills batches: -benchtime
// 20000x.

const benchBody = 200

// openStore returns an empty SQLite queue in a file.
func openStore(b *testing.B) *store {
	s, err := openQueue(b.Context(), options{engine: "sqlite"})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.remove()) })
	return s
}

func chanqQueue(b *testing.B, s *store) *chanq.Queue[[]byte] {
	q, err := s.open(b.Context())
	require.NoError(b, err)
	return q
}

// fill stores n messages.
func fill(b *testing.B, s *store, n int) {
	require.NoError(b, bareLoop{s, 500, 1}.enqueue(b.Context(), makeBodies(n, benchBody)))
}

// start begins the timed part; the returned function ends it.
func start(b *testing.B, s *store) (end func()) {
	b.ReportAllocs()
	before := s.counter.Statements()
	b.ResetTimer()
	cpu := measure.CPUTime()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(measure.CPUTime()-cpu)/float64(b.N), "cpu-ns/msg")
		b.ReportMetric(float64(s.counter.Statements()-before)/float64(b.N), "statements/msg")
	}
}

// BenchmarkGroupCommit measures Send, which returns when its message is stored, in many goroutines.
func BenchmarkGroupCommit(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("senders=%d", goroutines), func(b *testing.B) {
			s := openStore(b)
			c := crew{goroutines, 1}
			senders, err := chanqSenders(b.Context(), options{body: benchBody}, s, c)
			require.NoError(b, err)
			end := start(b, s)
			_, _, err = c.run(b.Context(), s, "send", (b.N+goroutines-1)/goroutines, senders.each)
			end()
			require.NoError(b, err)
			require.NoError(b, senders.close())
		})
	}
}

// take reads n leases.
func take(b *testing.B, c *chanq.Consumer[[]byte], n int) []*chanq.Lease[[]byte] {
	leases := make([]*chanq.Lease[[]byte], 0, n)
	for l := range c.C() {
		if leases = append(leases, l); len(leases) == n {
			return leases
		}
	}
	require.NoError(b, c.Err())
	b.Fatal("the channel was closed early")
	return nil
}

// BenchmarkDelivery measures the path from the table to the reader, without the settle.
func BenchmarkDelivery(b *testing.B) {
	s := openStore(b)
	fill(b, s, b.N)
	end := start(b, s)
	c, err := chanqQueue(b, s).Consume(b.Context(), chanq.ConsumerConfig{})
	require.NoError(b, err)
	leases := take(b, c, b.N)
	end()
	for _, l := range leases {
		require.NoError(b, l.Release())
	}
	require.NoError(b, c.Shutdown(context.Background()))
}

// BenchmarkSettle measures the settle, from the call to the database.
func BenchmarkSettle(b *testing.B) {
	for _, kind := range []struct {
		name string
		call func(*chanq.Lease[[]byte]) error
	}{
		{"ack", (*chanq.Lease[[]byte]).Ack},
		{"nack", func(l *chanq.Lease[[]byte]) error { return l.Nack(chanq.RetryAfter(time.Hour, nil)) }},
		{"release", (*chanq.Lease[[]byte]).Release},
		{"dead", func(l *chanq.Lease[[]byte]) error { return l.Nack(chanq.DeadLetter(nil)) }},
	} {
		b.Run("kind="+kind.name, func(b *testing.B) {
			s := openStore(b)
			fill(b, s, b.N)
			c, err := chanqQueue(b, s).Consume(b.Context(), chanq.ConsumerConfig{})
			require.NoError(b, err)
			leases := take(b, c, b.N)
			c.Stop()
			end := start(b, s)
			for _, l := range leases {
				require.NoError(b, kind.call(l))
			}
			require.NoError(b, c.Flush(b.Context()))
			end()
			require.NoError(b, c.Shutdown(context.Background()))
		})
	}
}

// BenchmarkClaimWithOtherWork claims and acks 500 messages of a queue with 100,000 others behind
// them that are ready, scheduled or leased: the cost must not grow with the others. An operation is
// one message.
func BenchmarkClaimWithOtherWork(b *testing.B) {
	const others, batch = 100_000, 500
	for _, state := range []string{"none", "ready", "scheduled", "leased"} {
		b.Run("others="+state, func(b *testing.B) {
			s := openStore(b)
			switch state {
			case "ready":
				require.NoError(b, s.fill(b.Context(), sqlbatch.Ready, others, benchBody))
				_, err := s.db.Exec("UPDATE "+s.liveTable()+" SET priority = ?", sqlbatch.PriorityLow)
				require.NoError(b, err)
			case "scheduled":
				require.NoError(b, s.fill(b.Context(), sqlbatch.Scheduled, others, benchBody))
			case "leased":
				require.NoError(b, s.fill(b.Context(), sqlbatch.Leased, others, benchBody))
			}
			n := (b.N + batch - 1) / batch * batch
			fill(b, s, n)
			end := start(b, s)
			require.NoError(b, bareLoop{s, batch, 1}.drain(b.Context(), n))
			end()
		})
	}
}
