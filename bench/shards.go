package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/chanqshards"
)

// shardAxis is the number of shards of a queue over several places.
var shardAxis = growthAxis{name: "shards", sizes: "1,4", least: 1, most: 64, about: "comma-separated: files, or schemas of -engine postgres, that the queue is spread over; 1 is a queue by itself"}

// measureShards measures the throughput of one queue over several files, each with its own writer,
// or over several schemas of one PostgreSQL, compared with a queue in a single one, in each round.
// Round 0 is not reported.
func measureShards(ctx context.Context, o options, report func(measure.Result)) error {
	bodies := makeBodies(o.n, o.body)
	sizes := o.growth[shardAxis.name]
	for round := range o.rounds + 1 {
		for i := range sizes {
			size := sizes[(i+round)%len(sizes)]
			r, err := measureShardsOnce(ctx, o, size, bodies)
			if err != nil {
				return fmt.Errorf("%d shards, round %d: %w", size, round, err)
			}
			if round > 0 {
				r.Round = round
				report(r)
			}
		}
	}
	return nil
}

func measureShardsOnce(ctx context.Context, o options, shards int, bodies [][]byte) (measure.Result, error) {
	n := float64(len(bodies))
	r := newResult(o, "chanq")
	r.N, r.Batch, r.Axis, r.Size, r.Send = len(bodies), o.batch, shardAxis.name, shards, o.send
	err := onShards(ctx, o, shards, func(s *shardStore) error {
		r.Server = s.stores[0].about(ctx)
		way := channels{s.queue, o.batch, o.send, 0, nil}
		fill, err := measure.Of(s.statements, func() error { return way.enqueue(ctx, bodies) })
		if err != nil {
			return err
		}
		drain, err := measure.Of(s.statements, func() error { return way.drain(ctx, len(bodies)) })
		r.EnqueuePerS, r.DrainPerS = n/fill.Seconds, n/drain.Seconds
		r.EnqueueCPU, r.DrainCPU = 1e6*fill.CPU/n, 1e6*drain.CPU/n
		r.StatementsPerMessage = (fill.Statements + drain.Statements) / n
		return err
	})
	if err != nil {
		return r, err
	}
	err = onShards(ctx, o, shards, func(s *shardStore) error {
		way := channels{s.queue, o.batch, o.send, 0, nil}
		both, err := measure.Of(s.statements, func() error { return way.pipeline(ctx, bodies) })
		r.PipelinePerS = n / both.Seconds
		return err
	})
	return r, err
}

// shardStore is a queue over several places.
type shardStore struct {
	stores []*store
	queue  queue
}

// spread is a queue over several databases.
type spread struct{ *chanqshards.Queue[[]byte] }

func (s spread) producer(cfg chanq.ProducerConfig) (producer, error) {
	return s.Producer(context.Background(), cfg)
}

func (s spread) consumer(ctx context.Context, cfg chanq.ConsumerConfig) (consumer, error) {
	return s.Consume(ctx, cfg)
}

// onShards runs f on an empty queue, which is removed afterwards.
func onShards(ctx context.Context, o options, shards int, f func(*shardStore) error) (err error) {
	s := &shardStore{}
	defer func() {
		for _, one := range s.stores {
			err = errors.Join(err, one.remove())
		}
	}()
	var places []chanqshards.Shard
	for range shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		store, err := openQueue(ctx, o)
		if err != nil {
			return err
		}
		s.stores = append(s.stores, store)
		places = append(places, chanqshards.Shard{DB: store.db, Schema: store.place.Schema})
	}
	if shards == 1 {
		opened, err := s.stores[0].open(ctx)
		if err != nil {
			return err
		}
		s.queue = single{opened}
		return f(s)
	}
	if err := chanqshards.Migrate(ctx, places, "spread", chanq.Config{}); err != nil {
		return err
	}
	opened, err := chanqshards.Open[[]byte](ctx, places, "spread", chanq.Config{})
	if err != nil {
		return err
	}
	s.queue = spread{opened}
	return f(s)
}

func (s *shardStore) statements() (n int64) {
	for _, one := range s.stores {
		n += one.counter.Statements()
	}
	return n
}

// checkShards: the engine's queues must be in separate databases or schemas.
func (o options) checkShards() error {
	if o.engine != sqliteEngine.name && o.engine != postgresEngine.name {
		return errors.New("-engine must be sqlite, which gives each shard a file of its own, or postgres, which gives it a schema")
	}
	if len(o.growth[shardAxis.name]) == 0 {
		return errors.New("-shards is empty")
	}
	return nil
}

func writeShards(w io.Writer, o options, results []measure.Result) error {
	bySize := measure.Group(results, func(r measure.Result) int { return r.Size })
	slices.SortFunc(bySize, func(a, b measure.Grouped[int]) int { return a.Key - b.Key })
	rates := measure.Table{
		Title: fmt.Sprintf("%s, body %d B, rounds %d", o.engine, o.body, rounds(results)),
		Head:  []string{"places", "messages", "enqueue/s", "drain/s", "pipeline/s", "statements/msg", "CPU µs/msg, enqueue + drain"},
	}
	ratios := measure.Table{
		Title: fmt.Sprintf("%s: against %d, medians of the rounds' ratios and their ranges", o.engine, bySize[0].Key),
		Head:  []string{"places", "enqueue/s", "drain/s", "pipeline/s", "CPU µs/msg of enqueue", "CPU µs/msg of drain"},
	}
	for i, g := range bySize {
		median := func(f measure.Figure) string { return measure.Short(measure.Median(g.Results, f)) }
		rates.Rows = append(rates.Rows, []string{
			fmt.Sprint(g.Key), fmt.Sprint(g.Results[0].N), measure.Ranged(g.Results, enqueueRate), measure.Ranged(g.Results, drainRate), measure.Ranged(g.Results, pipelineRate),
			median(func(r measure.Result) float64 { return r.StatementsPerMessage }), median(enqueueCPU) + " + " + median(drainCPU),
		})
		if i == 0 {
			continue
		}
		row := []string{fmt.Sprint(g.Key)}
		for _, f := range []measure.Figure{enqueueRate, drainRate, pipelineRate, enqueueCPU, drainCPU} {
			row = append(row, ratioRange(g.Results, bySize[0].Results, f))
		}
		ratios.Rows = append(ratios.Rows, row)
	}
	return measure.WriteTables(w, rates, ratios)
}
