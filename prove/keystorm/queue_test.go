package keystorm_test

import (
	"context"
	"errors"
	"iter"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
)

// queue is where workers send and receive: in one database, or over several.
type queue struct {
	shards []*chanq.Queue[string]     // each as a separate queue
	spread *chanqshards.Queue[string] // nil: one database
}

type producer interface {
	SendBatch(context.Context, ...chanq.Message[string]) ([]chanq.Receipt, error)
	Close(context.Context) error
}

type consumer interface {
	All() iter.Seq[*chanq.Lease[string]]
	Handle(int, chanq.Handler[string]) error
	Shutdown(context.Context) error
	Err() error
}

func openQueue(ctx context.Context, shards []chanqshards.Shard, cfg chanq.Config) (*queue, error) {
	if len(shards) == 1 {
		cfg.Notifier = shards[0].Notifier
		one, err := chanq.Open[string](ctx, shards[0].DB, queueName, cfg)
		return &queue{shards: []*chanq.Queue[string]{one}}, err
	}
	spread, err := chanqshards.Open[string](ctx, shards, queueName, cfg)
	if err != nil {
		return nil, err
	}
	q := &queue{spread: spread}
	for i := range shards {
		shard, err := spread.Shard(ctx, i)
		if err != nil {
			return nil, err
		}
		q.shards = append(q.shards, shard)
	}
	return q, nil
}

func (q *queue) produce(cfg chanq.ProducerConfig) (producer, error) {
	if q.spread != nil {
		return q.spread.Producer(context.Background(), cfg)
	}
	return q.shards[0].Producer(context.Background(), cfg)
}

func (q *queue) consume(ctx context.Context, cfg chanq.ConsumerConfig) (consumer, error) {
	if q.spread != nil {
		return q.spread.Consume(ctx, cfg)
	}
	return q.shards[0].Consume(ctx, cfg)
}

// shardOf returns the shard of a message that has a key.
func (q *queue) shardOf(m chanq.Message[string]) int { return chanq.ShardOf(m, len(q.shards)) }

// origin returns the shard from which a lease came.
func (q *queue) origin(l *chanq.Lease[string]) int {
	if q.spread != nil {
		return q.spread.Origin(l)
	}
	return 0
}

func (q *queue) wake() {
	for _, shard := range q.shards {
		shard.Wake()
	}
}

// redrive redrives dead messages of each shard.
func (q *queue) redrive(ctx context.Context, limit int) {
	for _, shard := range q.shards {
		if admin, err := testdb.TryAdmin(shard); err == nil { // if a process stopped with the database locked, the next redrive does it
			_, _ = admin.Redrive(ctx, chanqadmin.Select{All: true}, chanqadmin.Change{Limit: limit})
		}
	}
}

// empty reports whether no shard has a live message.
func (q *queue) empty(ctx context.Context) (bool, error) {
	all := true
	for _, shard := range q.shards {
		empty, err := shard.Empty(ctx)
		if err != nil {
			return false, err
		}
		all = all && empty
	}
	return all, nil
}

// dead returns how many messages are dead.
func (q *queue) dead(ctx context.Context) (n int, err error) {
	for _, shard := range q.shards {
		stats, wrong := testdb.Admin(shard).Stats(ctx)
		n, err = n+stats.Dead, errors.Join(err, wrong)
	}
	return n, err
}
