package demo

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
)

const (
	// drainFor is the time limit for the stages to end.
	drainFor = time.Minute
	// readAttempts is how often the demo tries to read a file that is unreadable although it has not changed since it
	// was listed.
	readAttempts = 3
)

// process lists the remaining files and runs both stages until no message is left, or ctx ends. Its goroutines: the
// lister, the two stages, the watcher.
func (d *demo) process(ctx context.Context, todo []entry) error {
	listed, done, err := d.ledger.counts(ctx)
	if err != nil {
		return err
	}
	total := listed
	for _, e := range todo {
		if e.skipped == "" {
			total++
		}
	}
	empty, err := d.empty(ctx)
	if err != nil {
		return err
	}
	if d.state.listed && empty {
		d.say("%s: all %d files went through the queues before; verifying again", d.state.dir, listed)
		return nil
	}
	if d.resumed {
		d.say("%s: going on: %d of %d files are done", d.state.dir, done, total)
	}
	start := time.Now()
	d.opt.Progress.Start("hashing through two queues", done, total)
	s := &stages{demo: d, total: total}
	s.done.Store(int64(done))
	err = s.run(ctx, todo)
	d.opt.Progress.End()
	if err != nil {
		return err
	}
	n := int(s.done.Load()) - done
	took := time.Since(start)
	d.say("%d files through two queues in %.2fs (%.0f files/s)", n, took.Seconds(), float64(n)/took.Seconds())
	return nil
}

type stages struct {
	*demo
	total int
	done  atomic.Int64
}

func (s *stages) run(parent context.Context, todo []entry) error {
	ctx, finish := context.WithCancel(parent)
	defer finish()
	config := chanq.ConsumerConfig{LeaseFor: s.opt.LeaseFor, Prefetch: s.opt.Prefetch, Backoff: chanq.ExponentialBackoff(50*time.Millisecond, time.Second)}
	files, err := s.files.Consume(ctx, config)
	if err != nil {
		return err
	}
	sums, err := s.sums.Consume(ctx, config)
	if err != nil {
		return errors.Join(err, files.Shutdown(parent))
	}

	// A goroutine that fails ends the others as the end of ctx does: claims stop, and messages that are being processed
	// are finished.
	work := pool.New().WithErrors().WithFirstError()
	stage := func(f func() error) {
		work.Go(func() error {
			err := f()
			if err != nil {
				finish()
			}
			return err
		})
	}
	listed := make(chan struct{})
	stage(func() error {
		err := s.list(ctx, todo)
		if err == nil {
			close(listed)
		}
		return err
	})
	stage(func() error { return chanq.Pipe(files, s.sums, s.opt.Workers, s.hash) })
	stage(func() error { return s.collect(ctx, sums) })
	stage(func() error {
		defer finish()
		return s.watch(ctx, listed)
	})
	err = work.Wait()

	bound, cancel := context.WithTimeout(context.WithoutCancel(parent), drainFor)
	defer cancel()
	ends := errors.Join(files.Shutdown(bound), sums.Shutdown(bound))
	switch {
	case parent.Err() != nil:
		return errors.Join(ErrInterrupted, ends)
	case err != nil:
		return err
	}
	return ends
}

// hash is the first stage. A file that has become unreadable, or has changed since it
// was listed, yields a result with that reason. The queue repeats only failures that
// may be temporary.
func (s *stages) hash(_ context.Context, l *chanq.Lease[file]) ([]chanq.Message[sum], error) {
	result := sum{No: l.Body.No, Message: l.ID}
	d, err := digest(s.root, l.Body)
	var changed *errChanged
	switch {
	case err == nil:
		result.Digest = d
	case errors.As(err, &changed) || l.Attempt >= readAttempts:
		result.Problem = reason(err)
	default:
		return nil, err
	}
	return []chanq.Message[sum]{{Body: result}}, nil
}

// collect is the second stage: it records results and acks them, in batches of one transaction.
func (s *stages) collect(ctx context.Context, sums *chanq.Consumer[sum]) error {
	for {
		batch, err := sums.Receive(context.Background(), s.opt.Prefetch, 10*time.Millisecond)
		if errors.Is(err, chanq.ErrClosed) { // stopped, and the buffer is empty
			return nil
		}
		if err != nil {
			return err
		}
		var counted int
		err = s.ledger.transact(ctx, "record digests", func(ctx context.Context, tx *sql.Tx) (err error) {
			counted, err = s.record(ctx, tx, batch)
			return err
		})
		if err != nil {
			for _, l := range batch {
				_ = l.Release() // if this fails, the lease expires; return the other error
			}
			return err
		}
		s.done.Add(int64(counted))
		s.opt.Progress.Add(counted)
	}
}

// record acks first. A lease that AckTx reports as lost or settled is already recorded, by another process or by an
// unconfirmed commit of this process.
func (s *stages) record(ctx context.Context, tx *sql.Tx, batch []*chanq.Lease[sum]) (counted int, err error) {
	for _, l := range batch {
		err := l.AckTx(ctx, tx)
		if errors.Is(err, chanq.ErrLeaseLost) || errors.Is(err, chanq.ErrSettled) {
			continue
		}
		if err != nil {
			return 0, err
		}
		known, err := s.ledger.record(ctx, tx, l.Body)
		if err != nil {
			return 0, err
		}
		if known {
			counted++
		}
	}
	return counted, nil
}

// watch returns when everything is listed and no message is left. While this process still misses results it polls once
// a second, because other processes may have them.
func (s *stages) watch(ctx context.Context, listed <-chan struct{}) error {
	select {
	case <-listed:
	case <-ctx.Done():
		return nil
	}
	const look, patience = 20 * time.Millisecond, 50
	tick := time.NewTicker(look)
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if s.done.Load() < int64(s.total) && i%patience != 0 {
			continue
		}
		empty, err := s.empty(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && empty {
			return nil
		}
	}
}
