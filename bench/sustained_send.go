package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// lateSend is for how long each transaction of -late-sends is open.
const lateSend = 2 * time.Second

// holds opens what -hold, -hold-send and -late-sends ask for.
func (s *store) holds(ctx context.Context, o options) (release func() error, err error) {
	var releases []func() error
	release = func() error {
		var errs []error
		for _, f := range releases {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for _, open := range []struct {
		asked bool
		open  func(context.Context) (func() error, error)
	}{
		{o.hold, s.holdSnapshot},
		{o.holdSend, s.holdSend},
		{o.lateSends > 0, func(ctx context.Context) (func() error, error) { return s.sendLate(ctx, o.lateSends) }},
	} {
		if !open.asked {
			continue
		}
		f, err := open.open(ctx)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		releases = append(releases, f)
	}
	return release, nil
}

// elsewhere opens the queue on connections apart from those of the run.
func (s *store) elsewhere(ctx context.Context) (*sql.DB, *chanq.Queue[[]byte], error) {
	inner, err := s.engine.connector(s.place, &measure.Counter{})
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(inner)
	queue, err := chanq.Open[[]byte](ctx, db, s.place.Queue, s.config())
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, queue, nil
}

// holdSend sends one message in a transaction that stays open, and is rolled back at the end.
func (s *store) holdSend(ctx context.Context) (release func() error, err error) {
	db, queue, err := s.elsewhere(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err == nil {
		_, err = queue.SendTx(ctx, tx, chanq.Message[[]byte]{Key: lateKey(s), Body: []byte{0}})
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return func() error { return errors.Join(tx.Rollback(), db.Close()) }, nil
}

// lateKey is the key of messages that are never committed.
func lateKey(s *store) string {
	if s.config().Kind == chanq.KindOrdered {
		return "late"
	}
	return ""
}

// sendLate begins so many transactions a second, each of which sends one message and is rolled back after lateSend.
func (s *store) sendLate(ctx context.Context, perSecond float64) (release func() error, err error) {
	db, queue, err := s.elsewhere(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			all.Go(func() {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return
				}
				defer func() { _ = tx.Rollback() }()
				if _, err := queue.SendTx(ctx, tx, chanq.Message[[]byte]{Key: lateKey(s), Body: []byte{0}}); err == nil {
					_ = measure.Sleep(ctx, lateSend)
				}
			})
		}
	})
	return func() error {
		cancel()
		all.Wait()
		return db.Close()
	}, nil
}
