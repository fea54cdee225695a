// Package trouble sets up problems of queues, as an operator sees them, in a queue of any depth: a type of message that
// makes its handler fail, a handler that is stuck, consumers that are dead, a slow database, a forgotten open
// transaction, a queue that was left paused. Tests set up each one and check that chanq doctor and chanq top show it;
// the command in the folder situation sets one up for inspection with any tool:
//
//	go run ./cmd/chanq/internal/situation -db /tmp/trouble.db stuck
//
// docs/operate/runbook.md describes the symptoms and the remedies. PostgreSQL and SQLite.
//
// Faults has the kinds of trouble that chanqfindings finds, in small queues of a test, on every engine.
package trouble

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Place is a queue with a problem.
type Place struct {
	DB       *sql.DB
	Postgres bool // otherwise it is SQLite
	Queue    string
	Hooks    chanq.Hooks // of the programs that use the queue
}

// Letter is the body of a message.
type Letter struct {
	Type   string `json:"type"` // card, parcel or invoice
	Number int    `json:"number"`
}

// Situation is one problem.
type Situation struct {
	Name string
	What string // one sentence
	// Begin causes the problem. fix ends it, as an operator would, and leaves a working consumer; end stops that
	// consumer.
	Begin func(context.Context, *Place) (fix func(context.Context) (end func(), err error), err error)
}

// Situations has all of them.
var Situations = []Situation{
	{"poison", "messages of one type fail, each time, until they are dead", poison},
	{"stuck", "every worker of the only consumer hangs on a message", stuck},
	{"dead", "messages are ready, and no consumer runs", dead},
	{"slow", "something else holds the queue's table, on SQLite the file, for seconds again and again", slow},
	{"forgotten", "a program has sent in a transaction that it does not end", forgotten},
	{"paused", "somebody has paused the queue", paused},
}

const (
	fillSQLite = `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
INSERT INTO chanq_%s (body, due_at) SELECT CAST('{"type":"' || CASE i %% 3 WHEN 0 THEN 'card' WHEN 1 THEN 'parcel' ELSE 'invoice' END || '","number":' || i || '}' AS BLOB), ?2 + i / 100 FROM n`
	fillPostgres = `INSERT INTO chanq_%s (body, due_at) SELECT convert_to('{"type":"' || (ARRAY['card', 'parcel', 'invoice'])[i %% 3 + 1] || '","number":' || i || '}', 'UTF8'), $2::bigint + i / 100 FROM generate_series(0, $1::integer - 1) AS n (i)`
)

// age is how long the oldest message of a Fill has been due.
const age = 6 * time.Hour

// Fill creates the queue, if necessary, and inserts n messages as any program might. They have been due for hours, so
// that the queue looks as if the problem had lasted long.
func (p *Place) Fill(ctx context.Context, n int) error {
	if err := chanq.Migrate(ctx, p.DB, p.Queue, chanq.Config{Spec: chanq.Spec{MaxAttempts: 3}}); err != nil {
		return err
	}
	text := fillSQLite
	if p.Postgres {
		text = fillPostgres
	}
	_, err := p.DB.ExecContext(ctx, fmt.Sprintf(text, p.Queue), n, time.Now().Add(-age).UnixMilli())
	return err
}

// open opens the queue with the configuration of its programs: a message that fails three times is dead.
func (p *Place) open(ctx context.Context) (*chanq.Queue[json.RawMessage], error) {
	return chanq.Open[json.RawMessage](ctx, p.DB, p.Queue, chanq.Config{Hooks: p.Hooks, StatementTimeout: 3 * time.Second})
}

// workers is the number of workers of each consumer.
const workers = 8

// consume starts a consumer that handles messages until stop is called. stop waits only a moment for a handler that
// hangs.
func (p *Place) consume(ctx context.Context, handle func(context.Context, Letter) error) (stop func(), err error) {
	q, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	soon := func(*chanq.Delivery, error) time.Duration { return 10 * time.Millisecond }
	c, err := q.Consume(context.WithoutCancel(ctx), chanq.ConsumerConfig{Name: "post-office/1", Backoff: soon})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { // ends when the consumer has stopped and its handlers have returned
		ended <- c.Handle(workers, func(_ context.Context, l *chanq.Lease[json.RawMessage]) error {
			var letter Letter
			if err := json.Unmarshal(l.Body, &letter); err != nil {
				return chanq.DeadLetter(err)
			}
			return handle(running, letter)
		})
	}()
	return func() {
		c.Stop()
		cancel()
		down, done := context.WithTimeout(context.Background(), 30*time.Second)
		defer done()
		_ = c.Shutdown(down)
		<-ended
	}, nil
}

// well handles every message without an error.
func well(context.Context, Letter) error { return nil }

// replace fixes most situations: it stops the bad consumer, and starts a working one.
func (p *Place) replace(stop func()) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		stop()
		return p.consume(ctx, well)
	}
}

var errCurrency = errors.New(`parse invoice: unknown currency "XBT"`)

func poison(ctx context.Context, p *Place) (func(context.Context) (func(), error), error) {
	stop, err := p.consume(ctx, func(_ context.Context, l Letter) error {
		if l.Type == "invoice" {
			return fmt.Errorf("invoice %d: %w", l.Number, errCurrency)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (func(), error) { // a version that knows the currency, then a redrive
		end, err := p.replace(stop)(ctx)
		if err != nil {
			return nil, err
		}
		q, err := p.open(ctx)
		if err == nil {
			_, err = testdb.Redrive(ctx, q, 0)
		}
		return end, err
	}, nil
}

func stuck(ctx context.Context, p *Place) (func(context.Context) (func(), error), error) {
	hangs := make(chan struct{}, workers)
	stop, err := p.consume(ctx, func(ctx context.Context, l Letter) error {
		if l.Type == "parcel" {
			select {
			case hangs <- struct{}{}:
			case <-ctx.Done():
			}
			<-ctx.Done() // a call without a deadline, to a service that does not answer
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for range workers {
		select {
		case <-hangs:
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		}
	}
	return p.replace(stop), nil
}

func dead(ctx context.Context, p *Place) (func(context.Context) (func(), error), error) {
	stop, err := p.consume(ctx, well)
	if err != nil {
		return nil, err
	}
	stop() // and it is not started again
	return p.replace(func() {}), nil
}

func paused(ctx context.Context, p *Place) (func(context.Context) (func(), error), error) {
	q, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := testdb.Pause(ctx, q); err != nil {
		return nil, err
	}
	stop, err := p.consume(ctx, well)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (func(), error) {
		return stop, testdb.Admin(q).Resume(ctx, chanqadmin.Change{})
	}, nil
}

// Named returns the situation with a name.
func Named(name string) (Situation, bool) {
	for _, s := range Situations {
		if s.Name == name {
			return s, true
		}
	}
	return Situation{}, false
}
