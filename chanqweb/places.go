package chanqweb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// placed is the stored configuration of a queue, except its kind.
type placed struct {
	Shard string // its shard if the queue is spread over several databases; "": the queue has no shards
	Holds bool   // dead messages hold their keys
}

// placed returns the known configuration of a queue, without a database call.
func (s *store) placed(name string) placed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[name]; k != nil {
		return k.placed
	}
	return placed{}
}

// names returns the names of all queues.
func (s *store) names(ctx context.Context) ([]string, error) {
	names, err := chanqadmin.Queues(ctx, s.db, s.config)
	if errors.Is(err, chanq.ErrNoSchema) {
		return nil, nil
	}
	return names, err
}

func (s *store) open(ctx context.Context, name string, k *known) error {
	q, err := chanqadmin.Open(ctx, s.db, name, s.config)
	if err != nil {
		return err
	}
	spec, mark := q.Opened()
	at := placed{Holds: spec.DeadKey == chanq.DeadKeyHolds}
	if mark.Count > 0 {
		at.Shard = fmt.Sprintf("shard %d of %d", mark.Index, mark.Count)
	}
	s.mu.Lock()
	k.placed = at
	s.mu.Unlock()
	k.queue, k.kind, k.opened, k.looked = q, spec.Kind, time.Now(), time.Time{}
	return nil
}
