package chanq

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/sqlbatch"
)

// The end of a consumer with ConsumerConfig.StopWhenIdle.
//
// A claimer whose claim has found nothing, while no shard of the consumer holds anything, looks once more,
// from the beginning. If nothing is due there, its shard is idle. The consumer stops once each shard is idle
// by a look that began after the last delivery of any shard: a handler of one shard may have sent to another.

// idleness decides when a consumer stops. It is safe for concurrent use.
type idleness struct {
	stop   func()
	shards []idler // complete before the first of them starts

	mu   sync.Mutex // guards what follows; nothing is called under it
	now  uint64     // deliveries, from 1 on
	idle []uint64   // of each shard: now, when the look began by which it is idle
}

// idler is a shard of the consumer.
type idler interface {
	// holds is how many leases and handlers the end has to wait for, or less than one for none.
	holds() int
	// again ends the pause of the claimer.
	again()
}

// delivers notes that a shard holds leases that may be delivered. Call it when holds counts them.
func (i *idleness) delivers() {
	if i == nil {
		return
	}
	i.mu.Lock()
	i.now++
	i.mu.Unlock()
}

// ended has all claimers look if nothing is held any more.
func (i *idleness) ended() {
	if i == nil || i.held() {
		return
	}
	for _, shard := range i.shards {
		shard.again()
	}
}

func (i *idleness) held() bool {
	for _, shard := range i.shards {
		if shard.holds() > 0 {
			return true
		}
	}
	return false
}

// begin begins a look. It reports false if the look could not end the consumer, since something is held.
func (i *idleness) begin() (now uint64, quiet bool) {
	i.mu.Lock()
	now = i.now // before the counts: what is delivered after them makes the look void
	i.mu.Unlock()
	return now, !i.held()
}

// isIdle notes that a look which began at now has found nothing in a shard. It stops the consumer, and
// reports so, if that holds for all shards.
func (i *idleness) isIdle(shard idler, now uint64) bool {
	i.mu.Lock()
	i.idle[slices.Index(i.shards, shard)] = now
	all := true
	for _, at := range i.idle {
		all = all && at == i.now
	}
	i.mu.Unlock()
	if all {
		i.stop()
	}
	return all
}

// notIdle withdraws isIdle of a shard: something is due there, or it does not answer.
func (i *idleness) notIdle(shard idler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.idle[slices.Index(i.shards, shard)] = 0 // now begins at 1
}

// stopIdle is called after a claim that found nothing. It reports that the consumer has stopped.
func (c *shardConsumer[T]) stopIdle(loop *retry.Loop) (stopped bool, failure *retry.Failure) {
	c.awaitDelivered()
	now, quiet := c.idleness.begin()
	if !quiet {
		return false, nil
	}
	var due sql.NullInt64
	failure = loop.Try(c.abandoned, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.StatementTimeout)
		defer cancel()
		return c.sessions.RunPatient(ctx, c.queue.sql.DueOrLocked(), func(rows *sql.Rows) error { return rows.Scan(&due) })
	})
	if failure != nil {
		return false, failure
	}
	c.count(func(s *ConsumerStats) { s.Looks++ })
	if due.Valid && due.Int64 <= 0 {
		c.idleness.notIdle(c)
		c.surveys.floor.hurried = true // it may lie below where claims begin
		return false, nil
	}
	return c.idleness.isIdle(c, now), nil
}

func (c *shardConsumer[T]) holds() int {
	n := int(c.held.Load() + c.working.Load())
	if c.order != nil { // leases that wait for a message of their key which is not due hold up nothing
		_, waiting := c.order.buffered()
		n -= waiting
	}
	return n
}

func (c *shardConsumer[T]) again() { notify(c.cleared) }

// stopIdle is that of a plain queue, by a look at the slots and a claim from the beginning of each that is
// ours. Only a claim sees messages that a transaction has locked.
//
// A slot is also idle if so many of its messages wait for a later time that the consumer claims no more of it
// (ConsumerStats.StalledSlots).
func (d *dispatch[T]) stopIdle(loop *retry.Loop, n int) (stopped bool, asked int, failure *retry.Failure) {
	c := d.c
	now, quiet := c.idleness.begin()
	if !quiet {
		return false, 0, nil
	}
	var look slotLook
	failure = loop.Try(c.abandoned, func(ctx context.Context) (err error) {
		look, err = slotStatements{c.queue, c.member.ID, d.runIdle}.look(ctx, nil)
		return err
	})
	if failure != nil {
		return false, 0, failure
	}
	c.count(func(s *ConsumerStats) { s.Looks++ })
	owned := 0
	for _, row := range look.rows {
		switch {
		case row.owner == c.member.ID:
			owned++
		case row.owner == [16]byte{} || row.gone:
			d.tenure.hurry() // it may have messages, and is to be taken first
			c.idleness.notIdle(c)
			return false, 0, nil
		}
	}
	d.change(func(ls *lines) { ls.recheck(monotonic()) })
	if asked, _, failure = d.claim(loop, n); failure != nil {
		return false, asked, failure
	}
	rest := false
	d.with(func(ls *lines) { rest = ls.atRest(owned, monotonic()) })
	if !rest { // of a paused queue a claim reports nothing
		failure = loop.Try(c.abandoned, func(ctx context.Context) error {
			found, err := c.queue.stored(func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return d.runIdle(ctx, st, scan) })
			rest = found.paused != 0
			return err
		})
	}
	if !rest {
		c.idleness.notIdle(c)
	}
	return failure == nil && rest && c.holds() <= 0 && c.idleness.isIdle(c, now), 0, failure
}

// recheck has the next claim walk each slot from the beginning, and report what a transaction has locked.
func (ls *lines) recheck(now time.Duration) {
	ls.sweep(now)
	for _, s := range ls.slots {
		s.doubt = true
	}
}

// atRest reports, after a claim that recheck asked for, that nothing is handed out or due in the slots, of which
// there are n.
func (ls *lines) atRest(n int, now time.Duration) bool {
	for _, s := range ls.slots {
		unknown := s.asks || s.doubt && s.used() <= ls.share()/2
		if s.closing || !s.ours || unknown || s.out > 0 {
			return false
		}
		for _, t := range s.entries {
			if t.first() && (t.at <= now || t.suspect || t.absent) {
				return false
			}
		}
	}
	return len(ls.slots) == n
}
