package kills

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
)

// The parts of the processes that a test starts: this test binary, told by a
// variable what it is to be. They end when their standard input does.
const partVariable = "CHANQ_CRASH_PART"

type part struct {
	Engine, Address string
	Dir             string // of the logs
	Life            Life
	LeaseFor        time.Duration
}

const (
	queueName   = "work"
	senders     = 4 // goroutines of a producer
	readers     = 8 // goroutines of a consumer
	sendEvery   = 20 * time.Millisecond
	mostWork    = 30 * time.Millisecond
	maxAttempts = 1000 // no message may end by kills alone
)

func play(variable string) error {
	var p part
	if err := json.Unmarshal([]byte(variable), &p); err != nil {
		return err
	}
	db, err := engines[p.Engine].open(p.Address)
	if err != nil {
		return err
	}
	defer db.Close()
	log, err := CreateLog(p.Dir, p.Life)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := log.Write(Event{Kind: Started, PID: os.Getpid()}); err != nil {
		return err
	}
	stop, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	q, err := reach(db)
	if err != nil {
		return err
	}
	if strings.HasPrefix(p.Life.Place, "producer") {
		return p.produce(stop, q, log)
	}
	return p.consume(stop, q, log)
}

// reach opens the queue as soon as the server lets it.
func reach(db *sql.DB) (*chanq.Queue[string], error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); ; <-again.C {
		q, err := chanq.Open[string](context.Background(), db, queueName, chanq.Config{MaxAttempts: maxAttempts})
		if err == nil || errors.Is(err, chanq.ErrNoSchema) || time.Now().After(deadline) {
			return q, err
		}
	}
}

// produce sends until it is told to stop, first of all what former lives may not
// have stored. Every second message has an ID of the sender's choice.
func (p *part) produce(stop context.Context, q *chanq.Queue[string], log *Log) error {
	producer, err := q.Producer(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	send := func(body string, id chanq.ID) error {
		if err := log.Write(Event{Kind: Intended, Body: body, ID: id}); err != nil {
			return err
		}
		r, err := producer.Send(context.Background(), chanq.Message[string]{ID: id, Body: body})
		if err != nil {
			return err
		}
		return log.Write(Event{Kind: Stored, Body: body, ID: r.ID})
	}
	var former []Event
	for n := 1; n < p.Life.N; n++ {
		events, err := ReadLog(p.Dir, Life{p.Life.Place, n})
		if err != nil {
			return err
		}
		former = append(former, events...)
	}
	var work errgroup.Group
	work.Go(func() error {
		sent := map[string]bool{}
		for _, e := range Unfinished(former) {
			if sent[e.Body] {
				continue // by two lives
			}
			sent[e.Body] = true
			if err := send(e.Body, e.ID); err != nil {
				return err
			}
		}
		return nil
	})
	for s := range senders {
		work.Go(func() error {
			tick := time.NewTicker(sendEvery)
			defer tick.Stop()
			for n := 1; ; n++ {
				select {
				case <-stop.Done():
					return nil
				case <-tick.C:
				}
				var id chanq.ID
				if n%2 == 0 {
					id = chanq.NewID()
				}
				if err := send(fmt.Sprintf("%s/%d/%d", p.Life, s, n), id); err != nil {
					return err
				}
			}
		})
	}
	err = work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(err, producer.Close(ctx))
}

// consume acks what it gets until it is told to stop, and writes down what
// became of it.
func (p *part) consume(stop context.Context, q *chanq.Queue[string], log *Log) error {
	c, err := q.Consume(stop, chanq.ConsumerConfig{
		Name: p.Life.String(), LeaseFor: p.LeaseFor, Prefetch: 64, PollMax: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	var work errgroup.Group
	for range readers {
		work.Go(func() error { return read(c, log) })
	}
	err = work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(err, c.Err(), c.Shutdown(ctx))
}

// read acks leases and logs them until the channel closes.
func read(c *chanq.Consumer[string], log *Log) error {
	for l := range c.C() {
		e := Event{Kind: Got, Body: l.Body, ID: l.ID, Attempt: l.Attempt, Deadline: l.Deadline()}
		if err := log.Write(e); err != nil {
			return err
		}
		<-time.After(rand.N(mostWork)) // the work, in which most kills should strike
		_ = l.Ack()                    // Wait tells
		outcome, err := outcomeOf(l)
		if err != nil {
			return err
		}
		if err := log.Write(Event{Kind: outcome, Body: l.Body, ID: l.ID, Attempt: l.Attempt}); err != nil {
			return err
		}
	}
	return nil
}

func outcomeOf(l *chanq.Lease[string]) (Kind, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := l.Wait(ctx)
	var op *chanq.OpError
	switch {
	case err == nil:
		return Acked, nil
	case errors.Is(err, chanq.ErrLeaseLost):
		return Lost, nil
	case errors.As(err, &op) && op.Unknown:
		return Unknown, nil
	}
	return "", err
}
