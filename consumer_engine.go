package chanq

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/consume"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/settle"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// consumer is what a Consumer is without the type of its bodies: its engine (package consume), and what hooks and errors say of it.
type consumer struct {
	queue  *queue
	cfg    ConsumerConfig
	health *base.Availability
	engine *consume.Consumer

	mu  sync.Mutex // guards err
	err error      // the first result of failure that is not nil
}

// newConsumer makes a consumer, and starts nothing. values are those of the leases' contexts.
func newConsumer(q *queue, cfg ConsumerConfig, values context.Context) (*consumer, error) {
	c := &consumer{queue: q, cfg: cfg, health: q.availability("consumer")}
	var group *consume.Group
	if cfg.StopWhenIdle {
		group = consume.NewGroup(1)
		if cfg.IdleGroup != nil {
			group = &cfg.IdleGroup.group
		}
	}
	engine, err := consume.New(consume.Config{
		DB: q.db, Table: q.table, Key: q.key, Debouncer: &q.debouncer,
		MaxAttempts: q.cfg.MaxAttempts, MaxBody: q.cfg.MaxBody, MaxCrashes: q.cfg.MaxCrashes,
		Slots: q.cfg.Slots, Keys: q.cfg.keysOf, DeadHolds: q.cfg.DeadKey == DeadKeyHolds,
		Retain: q.cfg.Retain, VacuumEvery: q.cfg.VacuumEvery, SessionMaxAge: q.cfg.SessionMaxAge, Paused: q.paused,
		Member: newMember(cfg.Name, cfg.LeaseFor), NewID: func() [16]byte { return NewID() },
		Prefetch: cfg.Prefetch, PrefetchBytes: cfg.PrefetchBytes, LeaseFor: cfg.LeaseFor, MaxExtend: cfg.MaxExtend,
		PollMin: cfg.PollMin, PollMax: cfg.PollMax,
		StatementTimeout: cfg.StatementTimeout, TryTimeout: cfg.tryTimeout(), Linger: cfg.linger(), Backlog: max(settleFactor*cfg.Prefetch, minBacklog),
		Delay: func(failures int) time.Duration { return nackDelay(c.backoff(failures)) },
		Group: group, Values: values, Of: c, Health: c.health, Isolated: q.isolated("consumer"), Task: q.task,
		Observer: consume.Observer{
			Claimed: q.recorder.claimed,
			Delivered: func(messages, bytes int, took time.Duration) {
				call(q.cfg.Hooks.Claimed, ClaimedEvent{Queue: q.label, Messages: messages, Bytes: bytes, Took: took})
			},
			Known: q.settleKnown, Settled: q.settlesStored, Lost: q.leaseLost,
		},
	})
	c.engine = engine
	return c, err
}

// newFeed makes the feed of a consumer, whose leases have bodies of type T.
func newFeed[T any](c *consumer) *consume.Feed[*Lease[T]] {
	return consume.NewFeed(consume.FeedConfig[*Lease[T]]{
		Source: c.engine.Source(), Room: c.cfg.Prefetch,
		Build:   func(b claim.Batch, into []*Lease[T]) []*Lease[T] { return build(c, b, into) },
		Under:   func(l *Lease[T]) *lease.Lease { return l.lease },
		Release: func(back []*lease.Lease) { c.engine.HandBack(back...) },
	})
}

// failure is the error that ended the consumer, or nil.
func (c *consumer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = c.queue.fail(c.engine.Failure())
	}
	return c.err
}

// paused reports that the queue is paused. It asks the database once, by run.
func (q *queue) paused(run func(sqlbatch.Statement, func(*sql.Rows) error) error) bool {
	var found table.Stored
	err := run(q.sql.Version(), found.Scan)
	return err == nil && found.Paused != 0
}

// settleKnown takes the outcome of a settle before the lease has it.
func (q *queue) settleKnown(l *lease.Lease, err error) {
	switch err {
	case nil:
		q.recorder.rolledBack(l)
		if l.Op == lease.Dead {
			call(q.cfg.Hooks.Dead, DeadEvent{Queue: q.label, ID: l.Item.ID, Attempt: l.Attempt, Reason: reasonOf(l)})
		}
	case ErrLeaseLost:
		q.recorder.rolledBack(l)
	}
}

// settlesStored takes the counts of a group.
func (q *queue) settlesStored(t settle.Tally, took time.Duration) {
	e := SettledEvent{Queue: q.label, Acked: t.Acked, Nacked: t.Nacked, Released: t.Released, Dead: t.Dead, Lost: t.Lost, Took: took}
	q.recorder.settled(e)
	call(q.cfg.Hooks.Settled, e)
}

// leaseLost returns the call of the LeaseLost hook, or nil.
func (q *queue) leaseLost(l *lease.Lease, confirmed bool) (report func()) {
	if q.cfg.Hooks.LeaseLost == nil {
		return nil
	}
	e := LeaseLostEvent{Queue: q.label, ID: l.Item.ID, Attempt: l.Attempt, Confirmed: confirmed}
	return func() { call(q.cfg.Hooks.LeaseLost, e) }
}

// reasonOf is why a message is dead-lettered, as hooks get it.
func reasonOf(l *lease.Lease) string {
	if l.Quiet {
		return "chanq: cannot decode: last_error of the message says why"
	}
	return base.Redact(l.Text)
}

// IdleGroup has consumers end when all of them are idle at once: see ConsumerConfig.IdleGroup. For example
// the stages of a pipeline end when no stage has anything to do.
type IdleGroup struct{ group consume.Group }

// NewIdleGroup makes a group of so many consumers: none of them ends before all were started.
func NewIdleGroup(consumers int) *IdleGroup {
	g := &IdleGroup{}
	g.group.Init(consumers)
	return g
}
