package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// look is a queue to be read, in one database.
type look struct {
	*chanqadmin.Queue
	db   *connection
	spec chanq.Spec
	mark chanq.ShardMark
}

// shard returns the queue's shard, for example "0/3", or "".
func (l look) shard() string {
	if l.mark.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", l.mark.Index, l.mark.Count)
}

// label returns the name, with the shard if it has one.
func label(queue, shard string) string {
	if shard == "" {
		return queue
	}
	return queue + " " + shard
}

// queueStats is one line of stats and top.
type queueStats struct {
	name, shard string
	chanqadmin.Stats
}

// allStats returns the stats of the named queues, or of all.
func (a *app) allStats(ctx context.Context, c *connection, names []string) ([]queueStats, error) {
	var list []queueStats
	err := a.eachQueue(ctx, c, names, func(q look) error {
		s, err := q.Stats(ctx)
		if err == nil {
			list = append(list, queueStats{q.Name(), q.shard(), s})
		}
		return err
	})
	return list, err
}

// eachQueue calls f for the named queues, or for all, in each database. A failure for one queue does not prevent calls for the others.
func (a *app) eachQueue(ctx context.Context, c *connection, names []string, f func(look) error) error {
	errs := []error{c.missed}
	for _, db := range c.all() {
		err := a.eachQueueOf(ctx, db, names, f)
		if err != nil && len(c.others) > 0 {
			err = fmt.Errorf("%s: %w", db.name, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *app) eachQueueOf(ctx context.Context, c *connection, names []string, f func(look) error) error {
	if len(names) == 0 {
		var err error
		if names, err = chanqadmin.Queues(ctx, c.DB, a.queueConfig(c)); err != nil {
			return err
		}
	}
	var errs []error
	for _, name := range names {
		q, err := chanqadmin.Open(ctx, c.DB, name, a.queueConfig(c))
		if err == nil {
			spec, mark := q.Opened()
			err = f(look{q, c, spec, mark})
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
