package chanqshards

import (
	"context"
	"errors"
	"fmt"

	"github.com/chanq/chanq"
)

// Pipe moves messages from one queue to another, as chanq.Pipe does: each input is replaced by its outputs in the shard of the input,
// in one transaction. fn is called in up to workers goroutines for each shard. A shard that does not answer delays no other shard.
//
// Both queues must have the same number of shards, and shard i of both must be on the same *sql.DB. Alternatively, to has one shard, and
// all shards of from are on its *sql.DB. An output with the Key of its input belongs to the input's shard, and an output without Key,
// DedupKey and ID stays there. If an output belongs to another shard (see Queue.ShardOf), its input is dead-lettered. For such outputs
// use Handle and Send.
//
// Pipe ends from as Consumer.Handle does, and returns what Handle returns. If the driver does not return from opening a shard of to, Pipe
// returns an error that wraps ErrStopped 1 s after the consumer has stopped.
func Pipe[In, Out any](from *Consumer[In], to *Queue[Out], workers int, fn func(context.Context, *chanq.Lease[In]) ([]chanq.Message[Out], error)) error {
	if from == nil || to == nil || fn == nil {
		return errors.New("chanq: pipe: from, to and fn must not be nil")
	}
	if workers < 1 {
		return fmt.Errorf("chanq: pipe %s to %s: workers is %d: must be at least 1", from.label, to.label, workers)
	}
	if n, m := len(from.readers), len(to.places); n != m && m > 1 {
		return fmt.Errorf("chanq: pipe %s to %s: from has %d shards, and to has %d: must be as many, or 1, since each input is replaced in its shard", from.label, to.label, n, m)
	}
	target := func(i int) *place[Out] { return to.places[min(i, len(to.places)-1)] }
	for i, r := range from.readers {
		if r.place.db != target(i).db {
			return fmt.Errorf("chanq: pipe %s to %s: the shards must be on the same *sql.DB, since one transaction spans both", r.place.cfg.Label, target(i).cfg.Label)
		}
	}
	return from.serve(func() error {
		return from.onEach(func(i int, shard *chanq.Consumer[In]) error {
			queue, err := target(i).await(from.stop, "producer")
			switch {
			case err == nil:
				return chanq.Pipe(shard, queue, workers, fn)
			case from.stop.Err() != nil && !errors.Is(err, chanq.ErrStopped):
				return nil
			}
			return err
		})
	})
}
