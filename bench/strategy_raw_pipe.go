package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// barePipe moves messages from one queue to the next by a bare loop on one connection: it claims a
// batch, then acks it and enqueues as many messages in the second queue in one transaction. Its
// drain moves the messages in the first queue. Its pipeline also fills that queue.
type barePipe struct {
	bareLoop
	next *store
}

func newBarePipe(ctx context.Context, o options, s *store) (strategy, error) {
	next, err := s.next(ctx)
	return barePipe{bareLoop{s, o.batch, 1}, next}, err
}

func (p barePipe) drain(ctx context.Context, n int) error {
	return p.store.session(ctx, func(s *bareSession) error { return takeAll(n, p.batch, p.moves(s)) })
}

func (p barePipe) pipeline(ctx context.Context, bodies [][]byte) error {
	return p.store.session(ctx, func(s *bareSession) error { return inBatches(bodies, p.batch, s.enqueue, p.moves(s)) })
}

func (p barePipe) moves(s *bareSession) func(n int) (int, error) {
	return func(n int) (int, error) { return p.move(s, n) }
}

// move claims up to n messages and replaces them with as many in the next queue.
func (p barePipe) move(s *bareSession, n int) (int, error) {
	if err := s.claim(n); err != nil || len(s.items) == 0 {
		return 0, err
	}
	tx, err := s.on.BeginTx(s.ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	acked := 0
	for items := range slices.Chunk(s.items, s.ackItems) {
		st := p.store.sql.InTx().Ack(items)
		rows, err := tx.QueryContext(s.ctx, st.Text, st.Args...)
		if err != nil {
			return 0, err
		}
		if err := eachRow(rows, func(*sql.Rows) error { acked++; return nil }); err != nil {
			return 0, err
		}
	}
	if acked != len(s.items) {
		return 0, fmt.Errorf("acked %d of %d messages", acked, len(s.items))
	}
	s.rows = s.rows[:0]
	for i := range s.messages {
		s.rows = append(s.rows, sqlbatch.Row{ID: chanq.NewID(), Body: s.messages[i].body})
	}
	st := p.next.sql.InTx().Enqueue(s.rows)
	if _, err := tx.ExecContext(s.ctx, st.Text, st.Args...); err != nil {
		return 0, err
	}
	return len(s.items), tx.Commit()
}
