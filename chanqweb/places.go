package chanqweb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chanq/chanq"
)

// Where queues are: in the page's database or, those of several shards, in the places of Config.Shards,
// each of which can tell what queue it is while others are away.

// placed is where a queue is: in shards of these names, or in one that is shown alone; and why
// figures are not of all of them.
type placed struct {
	Shards      []string
	Shard, Away string
	Holds       bool // dead messages hold their keys
}

// placed asks nothing: of a queue that is not known it is empty.
func (s *store) placed(name string) placed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[name]; k != nil {
		return k.placed
	}
	return placed{}
}

// names are those of the queues. Where the page's database does not answer, they are those of
// queues with several shards, as another place knows them, and away says so.
func (s *store) names(ctx context.Context) (names []string, away string, err error) {
	ask, cancel := patient(ctx, len(s.shards))
	defer cancel()
	names, err = chanq.Queues(ask, s.db, s.config)
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		return nil, "", nil
	case err == nil || len(s.shards) < 2 || ctx.Err() != nil:
		return names, "", err
	}
	for i, shard := range s.shards {
		if s.isOwn(i) {
			continue
		}
		names, other := s.spread(ctx, shard)
		if other == nil {
			away = missing([]string{s.shardName(0)})
			s.teller.tell("", away, err)
			return names, away, nil
		}
	}
	return nil, "", err
}

// spread are the names of the queues of a place that have as many shards as this page has.
func (s *store) spread(ctx context.Context, shard chanq.Shard) (names []string, err error) {
	ctx, cancel := patient(ctx, len(s.shards))
	defer cancel()
	config := s.config
	config.Schema = shard.Schema
	all, err := chanq.Queues(ctx, shard.DB, config)
	for _, name := range all {
		found, err := chanq.StoredConfig(ctx, shard.DB, name, config)
		if err != nil {
			return nil, err
		}
		if found.Shard.Count == len(s.shards) {
			names = append(names, name)
		}
	}
	return names, err
}

// isOwn reports whether a shard is in the page's database.
func (s *store) isOwn(i int) bool { return s.shards[i].DB == s.db }

func (s *store) shardName(i int) string { return cmp.Or(s.shards[i].Name, strconv.Itoa(i)) }

// stored is what the database says of a queue or, where it does not answer, another shard does.
func (s *store) stored(ctx context.Context, name string) (chanq.Config, error) {
	ask, cancel := patient(ctx, len(s.shards))
	defer cancel()
	config, err := chanq.StoredConfig(ask, s.db, name, s.config)
	var op *chanq.OpError
	if err == nil || len(s.shards) < 2 || !errors.As(err, &op) || errors.Is(err, chanq.ErrNoSchema) || ctx.Err() != nil {
		return config, err
	}
	for i, shard := range s.shards {
		if s.isOwn(i) {
			continue
		}
		other := s.config
		other.Schema = shard.Schema
		ask, cancel := patient(ctx, len(s.shards))
		found, wrong := chanq.StoredConfig(ask, shard.DB, name, other)
		cancel()
		if wrong == nil && found.Shard.Count == len(s.shards) {
			return found, nil
		}
	}
	return config, err
}

func (s *store) open(ctx context.Context, name string, k *known) error {
	config, err := s.stored(ctx, name)
	if err != nil {
		return err
	}
	at := placed{Holds: config.DeadKey == chanq.DeadKeyHolds}
	var q *chanq.Queue[[]byte]
	mark := config.Shard
	if mark.Count > 0 && mark.Count == len(s.shards) {
		config.Schema, config.Shard = "", chanq.ShardMark{}
		q, err = chanq.OpenShards[[]byte](ctx, s.shards, name, config)
		for i := range s.shards {
			at.Shards = append(at.Shards, printable(s.shardName(i)))
		}
	} else {
		if mark.Count > 0 {
			at.Shard = fmt.Sprintf("shard %d of %d", mark.Index, mark.Count)
		}
		q, err = chanq.Open[[]byte](ctx, s.db, name, config)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	at.Away = k.placed.Away
	k.placed = at
	s.mu.Unlock()
	k.queue, k.kind, k.opened, k.looked = q, config.Kind, time.Now(), time.Time{}
	return nil
}
