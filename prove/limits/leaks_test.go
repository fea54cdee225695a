package limits_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Everything that chanq can do leaves nothing open, first without faults and then with one
// operation in fifteen failing. World checks that at the end; TestMain checks the goroutines.
func TestNothingIsLeftOpenAfterFaults(t *testing.T) {
	const runs = 2
	onEach(t, func(w *world) {
		cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Hour}}
		b := newBustle(w, cfg) // without faults no statement may end early, however slow the machine is
		require.NoError(w, b.run(testdb.Patience))
		require.NoError(w, b.end(w.Soon()))
		cfg.StatementTimeout = statement
		b = newBustle(w, cfg)
		for seed := range uint64(runs) {
			w.Faults.Inject(w.randomFaults(rand.New(rand.NewPCG(seed, 1)), 15))
			_ = b.run(10 * time.Second) // errors do not matter here
			if seed%2 == 0 {
				// The shutdown is given up while everything fails.
				w.Faults.Inject(w.randomFaults(rand.New(rand.NewPCG(seed, 2)), 1))
				over, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				_ = b.end(over)
				cancel()
			}
			w.Faults.Inject(nil)
			require.NoError(w, b.end(w.Soon()))
		}
	})
}

// randomFaults makes one in one operations fail, on average.
func (w *world) randomFaults(r *rand.Rand, one int) func(faultdb.Op) faultdb.Fault {
	broken := errors.New("connection reset by peer")
	kinds := []faultdb.Fault{
		faultdb.Fail(w.Failure(sqlbatch.RolledBack)), faultdb.Cut(broken), faultdb.Cut(broken).Applied(), faultdb.Cut(broken).AfterRows(1),
		faultdb.Fail(w.Failure(sqlbatch.RolledBack)).AfterRows(1), faultdb.Hang(),
	}
	return func(op faultdb.Op) faultdb.Fault {
		if r.IntN(one) > 0 {
			return faultdb.Fault{}
		}
		f := kinds[r.IntN(len(kinds))]
		if op.Kind == faultdb.Rollback || op.Kind == faultdb.Connect {
			f = faultdb.Cut(broken) // these have no deadline to hang until
		}
		return f
	}
}

// bustle does everything that chanq can do, once per run.
type bustle struct {
	*world
	q, next        *chanq.Queue[string]
	producer       *chanq.Producer[string]
	consumer, last *chanq.Consumer[string]
	working        sync.WaitGroup
}

// statement is the statement timeout while operations fail.
const statement = 250 * time.Millisecond * testdb.Slowness

func newBustle(w *world, cfg chanq.Config) *bustle {
	w.Helper()
	b := &bustle{world: w}
	for name, q := range map[string]**chanq.Queue[string]{"work": &b.q, "next": &b.next} {
		require.NoError(w, w.Migrate(name, cfg))
		w.Eventually("the queue opens within the statement timeout", func() bool {
			var err error
			*q, err = chanq.Open[string](w.Soon(), w.DB, name, cfg)
			return err == nil
		})
		testdb.Admin(*q) // opens before the faults
	}
	return b
}

// run starts everything again, ends within a time, and returns the errors.
func (b *bustle) run(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	var err error
	b.producer, err = b.q.Producer(ctx, chanq.ProducerConfig{InFlight: 2})
	require.NoError(b, err)
	cfg := chanq.ConsumerConfig{LeaseFor: 10 * statement, PollEvery: 20 * time.Millisecond, Backoff: func(*chanq.Delivery, error) time.Duration { return 0 }}
	b.consumer, err = b.q.Consume(context.Background(), cfg)
	require.NoError(b, err)
	b.last, err = b.next.Consume(context.Background(), cfg)
	require.NoError(b, err)

	for i := range 20 {
		_, err := b.producer.Send(ctx, chanq.Message[string]{Body: fmt.Sprint(i), DedupKey: fmt.Sprint("key ", i%15), Headers: map[string]string{"n": fmt.Sprint(i)}})
		note(err)
		select {
		case b.producer.C() <- chanq.Message[string]{Body: fmt.Sprint(i)}:
		case <-ctx.Done():
		}
	}
	note(b.producer.Flush(ctx))
	for _, commit := range []bool{true, false} {
		note(b.inTx(ctx, commit))
	}
	var handled atomic.Int64
	b.working.Go(func() {
		_ = chanq.Pipe(b.consumer, b.next, 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			handled.Add(1)
			switch {
			case l.Attempt == 1 && len(l.Body)%2 == 0:
				return nil, chanq.RetryAfter(0, errors.New("again"))
			case l.Body == "7":
				return nil, chanq.DeadLetter(errors.New("no"))
			}
			return []chanq.Message[string]{{Body: l.Body}}, nil
		})
	})
	b.working.Go(func() {
		_ = b.last.Handle(4, func(ctx context.Context, l *chanq.Lease[string]) error {
			ctx, cancel := context.WithTimeout(ctx, statement)
			defer cancel()
			if err := l.Extend(ctx, time.Minute); err != nil {
				return err
			}
			if len(l.Body) > 1 {
				return nil
			}
			tx, err := b.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := l.AckTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		})
	})
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for handled.Load() < 20 && ctx.Err() == nil {
		<-tick.C
	}
	note(b.operate(ctx))
	return errors.Join(errs...)
}

// inTx sends in a transaction, and leases the sent messages.
func (b *bustle) inTx(ctx context.Context, commit bool) error {
	tx, err := b.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := b.q.SendTx(ctx, tx, chanq.Message[string]{Body: "in tx", DedupKey: "tx"}); err != nil {
		return err
	}
	if !commit {
		return nil
	}
	return tx.Commit()
}

// operate makes every operator call, and drains a queue.
func (b *bustle) operate(ctx context.Context) error {
	var errs []error
	note := func(_ any, err error) { errs = append(errs, err) }
	c, err := b.next.Consume(ctx, chanq.ConsumerConfig{Prefetch: 1, StopWhenIdle: true})
	if err != nil {
		return err
	}
	note(nil, c.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error {
		return [...]error{nil, chanq.Snooze(time.Hour, nil), chanq.RetryAfter(time.Hour, errors.New("no"))}[l.ID[15]%3]
	}))
	note(nil, c.Shutdown(ctx))
	note(testdb.Admin(b.q).Stats(ctx))
	note(testdb.Peek(ctx, b.q, chanqadmin.StateReady, 10))
	note(testdb.Redrive(ctx, b.q, 0))
	note(testdb.RedriveIDs(ctx, b.q, chanq.NewID()))
	note(b.q.Cancel(ctx, chanq.NewID()))
	note(testdb.Purge(ctx, b.q, chanqadmin.StateDone))
	note(nil, testdb.Pause(ctx, b.q))
	note(nil, testdb.Admin(b.q).Resume(ctx, chanqadmin.Change{}))
	note(nil, chanq.Migrate(ctx, b.DB, "work", chanq.Config{}))
	if _, err := testdb.Admin(b.q).Get(ctx, chanq.NewID()); !errors.Is(err, chanq.ErrNotFound) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// end stops everything in order. It can be called again.
func (b *bustle) end(ctx context.Context) error {
	b.consumer.Stop()
	b.last.Stop()
	errs := []error{b.consumer.Shutdown(ctx), b.last.Shutdown(ctx)}
	var unsent *chanq.UnsentError[string]
	if err := b.producer.Close(ctx); err != nil && !errors.As(err, &unsent) {
		errs = append(errs, err)
	}
	if ctx.Err() == nil {
		b.working.Wait()
	}
	return errors.Join(errs...)
}
