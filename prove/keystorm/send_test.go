package keystorm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/chanq/chanq"
)

// sender sends the messages of some keys, one send after another: each has returned before
// the next begins.
type sender struct {
	*worker
	producer *chanq.Producer[string]
	keys     []string
	next     map[string]int
}

func (w *worker) send(ctx context.Context) error {
	p, err := w.queue.Producer(chanq.ProducerConfig{})
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
	tell(event{Kind: quiet})
	return err
}

// hot: the key is the first of a sender.
func hot(key string) bool {
	_, k, _ := strings.Cut(key, ":")
	return len(k) == 1 && k < strconv.Itoa(senders)
}

// run sends at its rate, whatever the answers take, until ctx ends.
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
			key = s.keys[0] // the hot one
		}
		switch n := s.roll(10); {
		case n < 6:
			s.sendBatch(s.messages(key, 1))
		case n < 8:
			s.sendBatch(s.messages(key, 2+s.roll(4)))
		default:
			batch, ms := s.messages(key, 1+s.roll(3))
			s.sendTx(ctx, batch, ms)
		}
	}
}

// messages makes the next ones of a key, and tells that they are going to be sent.
func (s *sender) messages(key string, n int) (batch event, ms []chanq.Message[string]) {
	first := s.next[key]
	s.next[key] += n
	batch = event{Kind: intended, At: now(), Key: key, Number: first, Last: first + n - 1}
	for i := range n {
		ms = append(ms, chanq.Message[string]{Key: key, Body: fmt.Sprintf("%d %d", first+i, batch.At)})
	}
	tell(batch)
	return batch, ms
}

// parse reads a body: the number, and when it was intended.
func parse(body string) (number int, at int64) {
	n, t, _ := strings.Cut(body, " ")
	number, _ = strconv.Atoi(n)
	at, _ = strconv.ParseInt(t, 10, 64)
	return number, at
}

// sent tells what came of a send.
func sent(batch event, outcome kind, err error) {
	batch.Kind, batch.At = outcome, 0
	if err != nil {
		batch.How = err.Error()
	}
	tell(batch)
}

func (s *sender) sendBatch(batch event, ms []chanq.Message[string]) {
	switch _, err := s.producer.SendBatch(context.Background(), ms...); {
	case err == nil:
		sent(batch, stored, nil)
	case isUnknown(err):
		sent(batch, unknown, nil)
	default:
		sent(batch, failed, err)
	}
}

// isUnknown reports that nobody knows what came of a statement.
func isUnknown(err error) bool {
	var op *chanq.OpError
	return errors.As(err, &op) && op.Unknown
}

// sendTx sends in a transaction that commits late, or not at all. What the database undoes
// or what cannot be begun is not stored.
func (s *sender) sendTx(ctx context.Context, batch event, ms []chanq.Message[string]) {
	shard := s.queue.ShardOf(ms[0]) // they have one key
	tx, err := s.shards[shard].DB.BeginTx(context.Background(), nil)
	if err != nil {
		sent(batch, dropped, err)
		return
	}
	defer func() { _ = tx.Rollback() }() // again, perhaps
	for _, m := range ms {
		if _, err := s.queue.Shard(shard).SendTx(context.Background(), tx, m); err != nil {
			s.drop(tx, batch)
			return
		}
	}
	rest(ctx, s.moment(s.Databases[shard].late()))
	if s.roll(4) == 0 {
		s.drop(tx, batch)
		return
	}
	if err := tx.Commit(); err != nil {
		sent(batch, unknown, err)
		return
	}
	s.queue.Wake()
	sent(batch, stored, nil)
}

// drop rolls back. After an error of that the connection is gone, and its transaction with it.
func (s *sender) drop(tx *sql.Tx, batch event) {
	_ = tx.Rollback()
	sent(batch, dropped, nil)
}
