package main

import (
	"context"

	"github.com/chanq/chanq"
)

// queueStats is a line of stats and top.
type queueStats struct {
	name string
	chanq.Stats
}

// allStats looks at the named queues, or at all.
func (a *app) allStats(ctx context.Context, c *connection, names []string) ([]queueStats, error) {
	var list []queueStats
	err := a.eachQueue(ctx, c, names, func(q *chanq.Queue[[]byte]) error {
		s, err := q.Stats(ctx)
		list = append(list, queueStats{q.Name(), s})
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// eachQueue calls f for the named queues, or for all.
func (a *app) eachQueue(ctx context.Context, c *connection, names []string, f func(*chanq.Queue[[]byte]) error) error {
	if len(names) == 0 {
		var err error
		if names, err = chanq.Queues(ctx, c.DB, a.queueConfig(c)); err != nil {
			return err
		}
	}
	for _, name := range names {
		q, err := openQueue(ctx, c, name, a.queueConfig(c))
		if err != nil {
			return err
		}
		if err := f(q); err != nil {
			return err
		}
	}
	return nil
}
