package chanqjobs_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/embedded"
)

type payment struct {
	Order, Customer, Cents int64
	Note                   string
}

var (
	pay  = chanqjobs.Define[payment]("pay")
	book = chanqjobs.Define[payment]("book")
)

var handled atomic.Int64

func handlePayment(_ context.Context, l *chanq.Lease[payment]) error {
	handled.Add(l.Body.Cents)
	return nil
}

// A job costs one allocation more than a message of a queue of one type: the lease that is not decoded.
func TestAJobCostsOneAllocationMoreThanATypedMessage(t *testing.T) {
	data := []byte(`{"Order":1,"Customer":2,"Cents":3,"Note":"a note"}`)
	codec, ctx := chanqjobs.Codec(nil), t.Context()
	m := chanqjobs.NewMux()
	chanqjobs.Handle(m, pay, handlePayment, chanqjobs.Options{})
	typed := func() {
		l := &chanq.Lease[payment]{Delivery: chanq.Delivery{Type: "pay"}}
		if chanq.JSON.Decode(data, &l.Body) != nil || handlePayment(ctx, l) != nil {
			t.Error("it fails")
		}
	}
	job := func() {
		l := &chanq.Lease[chanqjobs.Job]{Delivery: chanq.Delivery{Type: "pay"}}
		if codec.Decode(data, &l.Body) != nil || m.Handle(ctx, l) != nil {
			t.Error("it fails")
		}
	}
	allocations := testing.AllocsPerRun(1000, job) - testing.AllocsPerRun(1000, typed)
	more := bytesPerRun(job) - bytesPerRun(typed)
	t.Logf("%v allocations and %.0f bytes more", allocations, more)
	require.LessOrEqual(t, allocations, 1.0)
	require.LessOrEqual(t, more, 300.0)
	require.Greater(t, more, 100.0, "the measurement sees the lease")
}

// bytesPerRun returns the allocated bytes of a call, of which no other goroutine allocates at the same time.
func bytesPerRun(f func()) float64 {
	const runs = 1000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / runs
}

// BenchmarkDrain handles the messages of a queue of one type, and of jobs of two kinds, by a mux and by channels.
func BenchmarkDrain(b *testing.B) {
	for _, how := range []string{"typed", "mux", "split"} {
		b.Run("how="+how, func(b *testing.B) {
			ctx := context.Background()
			db, err := embedded.Open(":memory:")
			require.NoError(b, err)
			defer db.Close()
			cfg := chanq.Config{History: chanq.HistoryOff}
			require.NoError(b, chanq.Migrate(ctx, db, "jobs", cfg))
			jobs, err := chanqjobs.Open(ctx, db, "jobs", cfg)
			require.NoError(b, err)
			typed, err := chanq.Open[payment](ctx, db, "jobs", cfg)
			require.NoError(b, err)
			p, err := jobs.Producer(ctx, chanq.ProducerConfig{})
			require.NoError(b, err)
			for i := range int64(b.N) {
				body := payment{i, i, i, "a note of some length, as notes are"}
				if i%2 == 0 {
					p.C() <- pay.New(body)
				} else {
					p.C() <- book.New(body)
				}
			}
			require.NoError(b, p.Close(ctx))
			b.ReportAllocs()
			b.ResetTimer()
			require.NoError(b, drain(ctx, how, typed, jobs))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

func drain(ctx context.Context, how string, typed *chanq.Queue[payment], jobs *chanq.Queue[chanqjobs.Job]) error {
	cfg := chanq.ConsumerConfig{StopWhenIdle: true}
	if how == "typed" {
		c, err := typed.Consume(ctx, cfg)
		if err != nil {
			return err
		}
		return c.Handle(4, handlePayment)
	}
	c, err := jobs.Consume(ctx, cfg)
	if err != nil {
		return err
	}
	m := chanqjobs.NewMux()
	if how == "mux" {
		chanqjobs.Handle(m, pay, handlePayment, chanqjobs.Options{})
		chanqjobs.Handle(m, book, handlePayment, chanqjobs.Options{})
		return c.Handle(4, m.Handle)
	}
	all := make(chan error, 3)
	pays, books := chanqjobs.Chan(m, pay), chanqjobs.Chan(m, book)
	go func() { all <- m.Split(c.C(), 1) }()
	for _, leases := range []<-chan *chanq.Lease[payment]{pays, books} {
		go func() { all <- chanq.Handle(leases, 2, handlePayment) }()
	}
	for range cap(all) {
		if err := <-all; err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
	}
	return c.Shutdown(ctx)
}
