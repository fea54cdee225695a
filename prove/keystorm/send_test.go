package keystorm_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/kills"
	"github.com/chanq/chanq/prove/testdb/crew"
)

// sender sends the messages of some keys, one send after another: each has returned before the next begins.
type sender struct {
	*worker
	producer producer
	keys     []string
	next     map[string]int
}

func (w *worker) send(ctx context.Context) error {
	p, err := w.queue.produce(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	all := pool.New()
	for i := range senders {
		s := &sender{worker: w, producer: p, next: map[string]int{}}
		for k := i; k < w.Keys; k += senders {
			key := fmt.Sprintf("%d:%d", w.Place, k)
			s.keys = append(s.keys, key)
			s.next[key] = max(1, w.Next[key])
		}
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
	err = p.Close(context.Background())
	kills.Tell(kills.Event{Kind: kills.Quiet})
	return err
}

// hot reports whether the key is the first of a sender.
func hot(key string) bool {
	_, k, _ := strings.Cut(key, ":")
	return len(k) == 1 && k < strconv.Itoa(senders)
}

// run sends at its rate, whatever the duration of the answers, until ctx ends.
func (s *sender) run(ctx context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) * senders / s.Rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		key := s.keys[s.roll(len(s.keys))]
		if s.roll(3) == 0 {
			key = s.keys[0] // the hot key
		}
		switch n := s.roll(10); {
		case n < 6:
			s.sendBatch(s.batch(key, 1))
		case n < 8:
			s.sendBatch(s.batch(key, 2+s.roll(4)))
		default:
			s.sendTx(ctx, s.batch(key, 1+s.roll(3)))
		}
	}
}

// batch has messages of one key, and their events before they are sent.
type batch struct {
	messages []chanq.Message[string]
	intents  []kills.Event
}

// batch creates the next n messages of a key, and prints that they are going to be sent. Their time is after all
// earlier sends of the key.
func (s *sender) batch(key string, n int) (b batch) {
	at := time.Now().UnixNano()
	for range n {
		number := s.next[key]
		s.next[key]++
		b.intents = append(b.intents, kills.Event{Kind: kills.Intended, At: at, Name: nameOf(key, number)})
		b.messages = append(b.messages, chanq.Message[string]{Key: key, Body: fmt.Sprintf("%d %d", number, at)})
	}
	kills.Tell(b.intents...)
	return b
}

// parse reads a body: the number, and when it was intended.
func parse(body string) (number int, at int64) {
	n, t, _ := strings.Cut(body, " ")
	number, _ = strconv.Atoi(n)
	at, _ = strconv.ParseInt(t, 10, 64)
	return number, at
}

// sent prints the outcome of a send.
func (b batch) sent(outcome kills.Kind, err error) {
	for i := range b.intents {
		e := &b.intents[i]
		e.Kind, e.At = outcome, 0
		if err != nil {
			e.Error = err.Error()
		}
	}
	kills.Tell(b.intents...)
}

func (s *sender) sendBatch(b batch) {
	_, err := s.producer.SendBatch(context.Background(), b.messages...)
	outcome := kills.Stored
	if err != nil {
		outcome = kills.OutcomeOf(err)
	}
	b.sent(outcome, err)
}

// sendTx sends in a transaction that commits late, or not at all. If the database rolls it back, or it cannot begin,
// the messages are not stored.
func (s *sender) sendTx(ctx context.Context, b batch) {
	shard := s.queue.shardOf(b.messages[0]) // they have one key
	tx, err := s.shards[shard].DB.BeginTx(context.Background(), nil)
	if err != nil {
		b.sent(kills.Dropped, err)
		return
	}
	defer func() { _ = tx.Rollback() }() // perhaps for the second time
	for _, m := range b.messages {
		if _, err := s.queue.shards[shard].SendTx(context.Background(), tx, m); err != nil {
			b.drop(tx)
			return
		}
	}
	crew.Rest(ctx, s.moment(s.Databases[shard].late()))
	if s.roll(4) == 0 {
		b.drop(tx)
		return
	}
	if err := tx.Commit(); err != nil {
		b.sent(kills.Unknown, err)
		return
	}
	s.queue.wake()
	b.sent(kills.Stored, nil)
}

// drop rolls back. After an error of the rollback the connection is gone, and its transaction with it.
func (b batch) drop(tx *sql.Tx) {
	_ = tx.Rollback()
	b.sent(kills.Dropped, nil)
}
