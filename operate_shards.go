package chanq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq/sqlbatch"
)

// What operators do with a queue of several shards: all are asked at the same time. What some
// answer is returned beside the errors of the others, each of which names its shard.

// ofEach asks each shard, and returns what they answer, in their order.
func ofEach[T, R any](q *Queue[T], ask func(*queue) (R, error)) ([]R, error) {
	answers := make([]R, len(q.shards))
	err := togetherOf(len(q.shards), func(i int) (err error) {
		answers[i], err = ask(q.shards[i])
		return err
	})
	return answers, err
}

func (q *Queue[T]) idsOfEach(do func(*queue) ([]ID, error)) ([]ID, error) {
	all, err := ofEach(q, do)
	return slices.Concat(all...), err
}

func (q *Queue[T]) countOfEach(do func(*queue) (int, error)) (total int, err error) {
	all, err := ofEach(q, do)
	for _, n := range all {
		total += n
	}
	return total, err
}

// joined is what together makes of errors: the only one by itself.
func joined(errs []error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// inOnePlace is the error of what needs a transaction, or nil.
func (q *Queue[T]) inOnePlace(op string) error {
	if len(q.shards) == 1 {
		return nil
	}
	return fmt.Errorf("chanq: %s %s: the queue has %d shards, and a transaction is in one place: call it on Queue.Shard (see Queue.ShardOf)", op, q.core.name, len(q.shards))
}

// add adds what another shard has.
func (s *Stats) add(o Stats) {
	s.Ready += o.Ready
	s.Scheduled += o.Scheduled
	s.Leased += o.Leased
	s.Dead += o.Dead
	s.Done += o.Done
	s.OldestReady = max(s.OldestReady, o.OldestReady)
	s.Paused = s.Paused || o.Paused
}

// sumSamples adds up the samples of several shards that begin at the same time.
func sumSamples(all [][]Sample) []Sample {
	if len(all) == 1 {
		return all[0]
	}
	list := slices.Concat(all...)
	slices.SortFunc(list, func(a, b Sample) int { return a.At.Compare(b.At) })
	sums := list[:0]
	counted := 0 // shards of the last sum
	for _, s := range list {
		if n := len(sums); n == 0 || !sums[n-1].At.Equal(s.At) {
			sums, counted = append(sums, Sample{At: s.At, Step: s.Step}), 0
		}
		sum := &sums[len(sums)-1]
		sum.add(s)
		if s.Counted {
			counted++
		}
		sum.Counted = counted == len(all)
	}
	return sums
}

// add adds what became of another shard.
func (s *Sample) add(o Sample) {
	s.Ready += o.Ready
	s.Scheduled += o.Scheduled
	s.Leased += o.Leased
	s.Dead += o.Dead
	s.OldestReady = max(s.OldestReady, o.OldestReady)
	s.Sent += o.Sent
	s.Acked += o.Acked
	s.Nacked += o.Nacked
	s.Died += o.Died
	s.Delivered += o.Delivered
	s.Waited += o.Waited
}

// peek asks each shard for the first n behind the place of last, and returns the first n of
// all.
func (q *Queue[T]) peek(ctx context.Context, s State, n int, last *Entry) ([]Entry, error) {
	all, err := ofEach(q, func(core *queue) ([]Entry, error) {
		if last == nil {
			return core.peek(ctx, s, n, nil)
		}
		after, some := core.behind(core.placeOf(last), s)
		if !some {
			return nil, nil
		}
		return core.peek(ctx, s, n, after)
	})
	list := slices.Concat(all...)
	q.sort(list, s)
	return list[:min(n, len(list))], err
}

// place is where a message stands among those of its state.
type place struct {
	sqlbatch.Place
	shard int
}

func (q *queue) placeOf(e *Entry) place {
	p := place{sqlbatch.Place{Priority: int8(e.Priority), At: e.DueAt.UnixMilli(), ID: e.ID}, e.Shard}
	switch live := sqlbatch.State(e.State).Live(); {
	case !live:
		p.At = e.EndedAt.UnixMilli()
	case q.ordered():
		p.At = e.seq
	}
	return p
}

// behind is the place in this shard behind which the messages are that come after another; some
// says that there may be any.
func (q *queue) behind(last place, s State) (after *sqlbatch.Place, some bool) {
	if sqlbatch.State(s).Live() && q.ordered() && q.of > 0 && q.index != last.shard { // shard after shard
		return nil, q.index > last.shard
	}
	return &last.Place, true
}

// comparePlaces compares by the order of Peek: live ones by their place, of ordered queues one
// shard after the other; ended ones latest first.
func (q *queue) comparePlaces(a, b place, s State) int {
	switch live := sqlbatch.State(s).Live(); {
	case !live:
		return cmp.Or(cmp.Compare(b.At, a.At), bytes.Compare(b.ID[:], a.ID[:]))
	case q.ordered():
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.At, b.At))
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.At, b.At), bytes.Compare(a.ID[:], b.ID[:]))
}

// sort puts what several shards have into the order of Peek.
func (q *Queue[T]) sort(list []Entry, s State) {
	if len(q.shards) > 1 {
		slices.SortStableFunc(list, func(a, b Entry) int { return q.core.comparePlaces(q.core.placeOf(&a), q.core.placeOf(&b), s) })
	}
}
