package main

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/pgnotify"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// queue is where workers send and receive: in one database, or over several. The processes of an ordered queue notify
// each other with the engine's notifier.
type queue struct {
	where  []chanqshards.Shard
	shards []*chanq.Queue[body]     // each as a separate queue
	spread *chanqshards.Queue[body] // nil: one database
}

type producer interface {
	SendBatch(context.Context, ...chanq.Message[body]) ([]chanq.Receipt, error)
	Close(context.Context) error
}

type consumer interface {
	All() iter.Seq[*chanq.Lease[body]]
	Handle(int, chanq.Handler[body]) error
	Shutdown(context.Context) error
	Err() error
}

// connect connects to the databases of a storm, with faults if choose is not nil.
func connect(s storm, choose func(faultdb.Op) faultdb.Fault) (*queue, error) {
	q := &queue{}
	for _, p := range s.At {
		connector, err := engines[p.Engine].Connect(p.Address)
		if err != nil {
			return nil, errors.Join(err, q.close())
		}
		if choose != nil {
			faults := faultdb.New(connector)
			faults.Inject(choose)
			connector = faults
		}
		shard := chanqshards.Shard{DB: sql.OpenDB(connector)}
		if s.Ordered {
			shard.DB.SetMaxOpenConns(12)
			if p.Engine == testdb.Postgres.Name {
				shard.Notifier = pgnotify.New(shard.DB, pgnotify.Config{})
			}
		}
		q.where = append(q.where, shard)
	}
	return q, nil
}

func (q *queue) close() (err error) {
	for _, s := range q.where {
		if s.Notifier != nil {
			err = errors.Join(err, s.Notifier.(*pgnotify.Notifier).Close())
		}
		err = errors.Join(err, s.DB.Close())
	}
	return err
}

// open opens the queue, which exists.
func (q *queue) open(ctx context.Context, cfg chanq.Config) (err error) {
	if len(q.where) == 1 {
		cfg.Notifier = q.where[0].Notifier
		one, err := chanq.Open[body](ctx, q.where[0].DB, queueName, cfg)
		q.shards = []*chanq.Queue[body]{one}
		return err
	}
	if q.spread, err = chanqshards.Open[body](ctx, q.where, queueName, cfg); err != nil {
		return err
	}
	q.shards = make([]*chanq.Queue[body], len(q.where))
	for i := range q.shards {
		if q.shards[i], err = q.spread.Shard(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) produce(ctx context.Context) (producer, error) {
	if q.spread != nil {
		return q.spread.Producer(ctx, chanq.ProducerConfig{})
	}
	return q.shards[0].Producer(ctx, chanq.ProducerConfig{})
}

func (q *queue) consume(ctx context.Context, cfg chanq.ConsumerConfig) (consumer, error) {
	if q.spread != nil {
		return q.spread.Consume(ctx, cfg)
	}
	return q.shards[0].Consume(ctx, cfg)
}

// shardOf returns the shard of a message that has a key, and origin the one from which a lease came.
func (q *queue) shardOf(m chanq.Message[body]) int { return chanq.ShardOf(m, len(q.shards)) }

func (q *queue) origin(l *chanq.Lease[body]) int {
	if q.spread != nil {
		return q.spread.Origin(l)
	}
	return 0
}

// redrive redrives dead messages of each shard. A worker that is stopped might have locked the database, and only the
// goroutine that redrives lets it continue: it must not wait for long.
func (q *queue) redrive(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, shard := range q.shards {
		if admin, err := testdb.TryAdmin(shard); err == nil { // the next redrive does what this one cannot
			_, _ = admin.Redrive(ctx, chanqadmin.Select{All: true}, chanqadmin.Change{Limit: 1000})
		}
	}
}

// stats returns the sums over all shards.
func (q *queue) stats(ctx context.Context) (live, dead int, err error) {
	for _, shard := range q.shards {
		s, wrong := testdb.Admin(shard).Stats(ctx)
		live, dead, err = live+s.Ready+s.Scheduled+s.Leased, dead+s.Dead, errors.Join(err, wrong)
	}
	return live, dead, err
}
