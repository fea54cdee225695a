package chanqshards

import (
	"context"
	"errors"
	"fmt"

	"github.com/chanq/chanq"
)

// Pipe moves messages from one queue to another, as chanq.Pipe does: each input is replaced by its outputs in
// the shard where the input is, in one transaction. fn is called in up to workers goroutines for each shard.
// A shard that is away keeps no other shard waiting.
//
// Both queues must have the same number of shards, and shard i of both must be on the same *sql.DB; or to
// has one shard, and all shards of from are on its *sql.DB. An output with the Key of its input belongs to
// the input's shard, and an output without Key, DedupKey and ID stays there. If an output belongs to another
// shard (see Queue.ShardOf), its input is dead-lettered. For such outputs use Handle and Send.
//
// Pipe ends the consumers of the shards as chanq.Pipe does, within the same bound, and returns when from has stopped and every group is
// stored; then it returns from's Err, or an error that says what is left.
func Pipe[In, Out any](from *Consumer[In], to *Producer[Out], workers int, fn func(context.Context, *chanq.Lease[In]) ([]chanq.Message[Out], error)) error {
	if from == nil || to == nil || fn == nil {
		return errors.New("chanq: pipe: from, to and fn must not be nil")
	}
	if n, m := len(from.readers), len(to.senders); n != m && m > 1 {
		return fmt.Errorf("chanq: pipe %s to %s: the first has %d shards and the second %d: each input is replaced in its shard, so both must have the same number, or the second one shard", from.label, to.label, n, m)
	}
	target := func(i int) *sender[Out] { return to.senders[min(i, len(to.senders)-1)] }
	for i, r := range from.readers {
		if r.place.db != target(i).place.db {
			return fmt.Errorf("chanq: pipe %s to %s: the shards must be on the same *sql.DB, since one transaction spans both", r.place.cfg.Label, target(i).place.cfg.Label)
		}
	}
	err := each(len(from.readers), func(i int) error {
		r, s := from.readers[i], target(i)
		select {
		case <-s.ready:
		case <-from.stop.Done():
			return nil
		}
		if <-r.ready; r.shard == nil {
			return nil // from has stopped
		}
		err := s.err
		if err == nil {
			err = chanq.Pipe(r.shard, s.shard, workers, fn)
		}
		if err != nil {
			from.Stop()
		}
		return err
	})
	if failed := from.Err(); failed != nil {
		return failed
	}
	return err
}
