package main

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"
)

// bestLoop is a loop that shows what is possible: on chanq's own table, with its indexes, and with
// the commits of each batch on disk, but without a part of what chanq does. It has one sender, one
// receiver, and messages with nothing but a body. suiteRows says what each loop leaves out.
type bestLoop struct {
	store *store
	batch int
	// send stores the bodies in batches, and calls stored after each commit.
	send func(ctx context.Context, l bestLoop, bodies [][]byte, stored func()) error
	// take receives n messages. Where it finds none it calls more to wait.
	take func(ctx context.Context, l bestLoop, n int, more func(context.Context) error) error
}

// newBest returns the fastest loops that keep the order of the sender and lease what they deliver.
func newBest(ctx context.Context, o options, s *store) (strategy, error) {
	if o.engine == sqliteEngine.name {
		_, err := s.db.ExecContext(ctx, s.named(sqliteRangesText))
		return bestLoop{s, o.batch, sendBound, takeRangesSQLite}, err
	}
	_, err := s.db.ExecContext(ctx, s.named(rangesText))
	return bestLoop{s, o.batch, sendPipelined, takeRanges}, err
}

// newLimit returns the loops that are the least any program can do on PostgreSQL.
func newLimit(_ context.Context, o options, s *store) (strategy, error) {
	return bestLoop{s, o.batch, sendCopy, takeDeleting}, nil
}

func (l bestLoop) enqueue(ctx context.Context, bodies [][]byte) error {
	return l.send(ctx, l, bodies, func() {})
}

func (l bestLoop) drain(ctx context.Context, n int) error { return l.take(ctx, l, n, nothingLeft) }

func (l bestLoop) pipeline(ctx context.Context, bodies [][]byte) error {
	return together(ctx, func(ctx context.Context, stored func()) error { return l.send(ctx, l, bodies, stored) },
		func(ctx context.Context, more func(context.Context) error) error {
			return l.take(ctx, l, len(bodies), more)
		})
}

// nothingLeft is more where all messages are stored.
func nothingLeft(context.Context) error { return errors.New("nothing is left with messages to come") }

// receive hands the bodies over and counts the messages that are left.
func (l bestLoop) receive(bodies [][]byte, left int) int {
	for _, body := range bodies {
		l.store.received.add(body)
	}
	return left - len(bodies)
}

// together runs a sender and a receiver. The receiver waits with more for the next call of stored.
func together(ctx context.Context, send func(ctx context.Context, stored func()) error, take func(ctx context.Context, more func(context.Context) error) error) error {
	stored := make(chan struct{}, 1) // receives a value after each batch
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return send(ctx, func() {
			select {
			case stored <- struct{}{}:
			default:
			}
		})
	})
	group.Go(func() error {
		return take(ctx, func(ctx context.Context) error {
			select {
			case <-stored:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return group.Wait()
}

// named fills in the names of tables: {live} is chanq's, {ranges} the one of the leases of ranges,
// which is removed with the store.
func (s *store) named(text string) string {
	ranges := `"ranges"`
	if s.place.Schema != "" {
		ranges = `"` + s.place.Schema + `".` + ranges
	}
	return strings.NewReplacer("{live}", s.liveTable(), "{ranges}", ranges,
		"{clock}", "(SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint)").Replace(text)
}
