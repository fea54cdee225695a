package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// bareSession is one connection with the reusable buffers of its loop.
type bareSession struct {
	on       *sql.Conn
	queue    sqlbatch.Queue
	ctx      context.Context // never cancelled, because drivers start a goroutine for a context that can be
	prepare  bool
	ackItems int // the most items of one ack, which may be less than a batch
	prepared map[string]*sql.Stmt

	spent    spent
	received *tally

	floors   sqlbatch.Heads // the latest due times that a claim has returned
	rows     []sqlbatch.Row
	messages []bareMessage
	items    []sqlbatch.Item
	arena    []byte // of keys, headers and bodies, which messages refer to
}

// session passes a separate connection to f.
func (s *store) session(ctx context.Context, f func(*bareSession) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	traits := s.dialect.Traits()
	session := &bareSession{
		on: conn, queue: s.sql, ctx: context.WithoutCancel(ctx),
		prepare: traits.Prepare, ackItems: traits.AckItems, prepared: map[string]*sql.Stmt{}, received: s.received,
	}
	defer func() {
		for _, stmt := range session.prepared {
			_ = stmt.Close()
		}
		s.spent.add(&session.spent)
	}()
	return f(session)
}

// bareMessage has the fields that a handler would receive.
type bareMessage struct {
	item               sqlbatch.Item
	priority, attempts int64
	enqueued, due      int64
	key, headers, body []byte
}

func (s *bareSession) enqueue(bodies [][]byte) error {
	s.rows = s.rows[:0]
	for _, body := range bodies {
		s.rows = append(s.rows, sqlbatch.Row{ID: chanq.NewID(), Body: body})
	}
	defer since(time.Now(), &s.spent.enqueue)
	return s.do(s.queue.Enqueue(s.rows), nil)
}

// claimAndAck claims up to n messages and deletes them.
func (s *bareSession) claimAndAck(n int) (int, error) {
	if err := s.claim(n); err != nil || len(s.items) == 0 {
		return 0, err
	}
	for items := range slices.Chunk(s.items, s.ackItems) {
		if err := s.ack(items); err != nil {
			return 0, err
		}
	}
	return len(s.items), nil
}

// claim fills messages and items. Each body is copied once. It reads from the end of the last
// claim, and from the beginning only if no message is left there.
func (s *bareSession) claim(n int) error {
	defer since(time.Now(), &s.spent.claim)
	if err := s.claimFrom(n); err != nil || len(s.items) > 0 || s.floors == (sqlbatch.Heads{}) {
		return err
	}
	s.floors = sqlbatch.Heads{}
	return s.claimFrom(n)
}

// claimFrom claims from the floors on, and advances them.
func (s *bareSession) claimFrom(n int) error {
	s.messages, s.items = s.messages[:0], s.items[:0]
	var id, key, kind, headers, body sql.RawBytes
	var m bareMessage
	var lapses, expired, size int64
	var expires sql.NullInt64
	columns := []any{&id, &m.priority, &m.item.Fence, &m.attempts, &lapses, &expired, &m.enqueued, &m.due, &expires, &key, &kind, &headers, &body, &size}
	claim := s.queue.Claim(sqlbatch.ClaimParams{Rows: n, Lease: leaseFor, Salt: 1, Heads: s.floors, Inline: sqlbatch.MaxBody})
	return s.do(claim, func(rows *sql.Rows) error {
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		copy(m.item.ID[:], id)
		m.key, m.headers, m.body = s.keep(key), s.keep(headers), s.keep(body)
		s.received.add(m.body)
		s.messages = append(s.messages, m)
		s.items = append(s.items, m.item)
		floor := &s.floors[m.priority-sqlbatch.PriorityLow]
		if at := (sqlbatch.Head{Due: m.due, ID: m.item.ID}); floor.Compare(at) < 0 {
			*floor = at
		}
		return nil
	})
}

// bareBatch is the result of a claim, for use outside the session.
type bareBatch struct {
	messages []bareMessage
	items    []sqlbatch.Item
}

// claimBatch claims a batch that the session does not keep.
func (s *bareSession) claimBatch(n int) (bareBatch, error) {
	err := s.claim(n)
	b := bareBatch{s.messages, s.items}
	s.messages, s.items = make([]bareMessage, 0, n), make([]sqlbatch.Item, 0, n)
	return b, err
}

func (s *bareSession) ack(items []sqlbatch.Item) error {
	defer since(time.Now(), &s.spent.ack)
	acked := 0
	var id sql.RawBytes
	var fence sql.NullInt64
	columns := []any{&id, &fence}
	err := s.do(s.queue.Ack(items), func(rows *sql.Rows) error {
		err := rows.Scan(columns...)
		if acked++; id == nil {
			acked = len(items)
		}
		return err
	})
	if err == nil && acked != len(items) {
		err = fmt.Errorf("acked %d of %d messages", acked, len(items))
	}
	return err
}

// spent is the time of the statements of each kind, including reading their rows.
type spent struct {
	mu                  sync.Mutex // used for a store, to which several sessions add
	enqueue, claim, ack time.Duration
}

func (s *spent) add(more *spent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue += more.enqueue
	s.claim += more.claim
	s.ack += more.ack
}

func (s *spent) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue, s.claim, s.ack = 0, 0, 0
}

// of sets the time per message in a result.
func (s *spent) of(r *measure.Result) {
	per := 1e6 / float64(r.N)
	r.EnqueueStatement, r.ClaimStatement, r.AckStatement = per*s.enqueue.Seconds(), per*s.claim.Seconds(), per*s.ack.Seconds()
}

func since(start time.Time, sum *time.Duration) { *sum += time.Since(start) }

// keep copies bytes that the driver will overwrite.
func (s *bareSession) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	if len(b) > cap(s.arena)-len(s.arena) {
		s.arena = make([]byte, 0, max(64<<10, len(b)))
	}
	from := len(s.arena)
	s.arena = append(s.arena, b...)
	return s.arena[from:len(s.arena):len(s.arena)]
}

// do runs one statement, prepared if the dialect benefits from it.
func (s *bareSession) do(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	var stmt *sql.Stmt
	if s.prepare {
		if stmt = s.prepared[st.Text]; stmt == nil {
			var err error
			if stmt, err = s.on.PrepareContext(s.ctx, st.Text); err != nil {
				return err
			}
			s.prepared[st.Text] = stmt
		}
	}
	if scan == nil {
		var err error
		if stmt != nil {
			_, err = stmt.ExecContext(s.ctx, st.Args...)
		} else {
			_, err = s.on.ExecContext(s.ctx, st.Text, st.Args...)
		}
		return err
	}
	var rows *sql.Rows
	var err error
	if stmt != nil {
		rows, err = stmt.QueryContext(s.ctx, st.Args...)
	} else {
		rows, err = s.on.QueryContext(s.ctx, st.Text, st.Args...)
	}
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// eachRow passes every row of every result set to scan.
func eachRow(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}
