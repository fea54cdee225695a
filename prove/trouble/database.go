package trouble

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// holdFor is how long the table is locked each time, and pauseFor how long it is free in between.
const (
	holdFor  = 2 * time.Second
	pauseFor = 100 * time.Millisecond
)

// slow simulates a nightly job that locks the table, with short pauses, while a program sends one message after the
// other.
func slow(ctx context.Context, p *Place) (func(context.Context) (func(), error), error) {
	stop, err := p.consume(ctx, well)
	if err != nil {
		return nil, err
	}
	q, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	sender, err := q.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return nil, err
	}
	at, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { // until the situation is fixed
		for at.Err() == nil {
			p.hold(at)
			pause(at, pauseFor)
		}
	})
	ended.Go(func() { // until the situation is fixed
		for at.Err() == nil {
			_, _ = sender.Send(at, chanq.Message[json.RawMessage]{Body: json.RawMessage(`{"type":"card","number":-1}`)})
			pause(at, pauseFor/2)
		}
	})
	return func(ctx context.Context) (func(), error) {
		cancel()
		ended.Wait()
		return stop, sender.Close(ctx)
	}, nil
}

// hold locks the table for a time. If it fails, the next call tries again.
func (p *Place) hold(ctx context.Context) {
	tx, err := p.DB.BeginTx(ctx, nil) // on SQLite this takes the lock
	if err != nil {
		return
	}
	defer tx.Rollback()
	if p.Postgres {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL application_name = 'nightly job'; LOCK TABLE chanq_%s IN EXCLUSIVE MODE", p.Queue)); err != nil {
			return
		}
	}
	pause(ctx, holdFor)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// forgotten sends in a transaction, and leaves it open: PostgreSQL can clean up no row that died since, and on SQLite
// no other connection can write.
func forgotten(ctx context.Context, p *Place) (func(context.Context) (func(), error), error) {
	q, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	stop, err := p.consume(ctx, well)
	if err != nil {
		return nil, err
	}
	tx, err := p.forget(ctx, q)
	if err != nil {
		stop()
		return nil, err
	}
	return func(context.Context) (func(), error) { return stop, tx.Rollback() }, nil
}

func (p *Place) forget(ctx context.Context, q *chanq.Queue[json.RawMessage]) (*sql.Tx, error) {
	tx, err := p.DB.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	if p.Postgres {
		if _, err := tx.ExecContext(ctx, "SET LOCAL application_name = 'web shop'"); err != nil {
			return nil, err
		}
	}
	_, err = q.SendTx(ctx, tx, chanq.Message[json.RawMessage]{Body: json.RawMessage(`{"type":"card","number":-1}`)})
	return tx, err
}
