package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// The loops on SQLite use the driver of chanq, which is pure Go. A driver with cgo needs a C
// compiler and another module, and is left out. A DELETE … RETURNING without a lease is no faster here.

// sendBound inserts rows as bound parameters, not as a packed list. All columns except id and body
// have one value for all rows.
func sendBound(ctx context.Context, l bestLoop, bodies [][]byte, stored func()) error {
	texts := map[int]string{} // by number of rows
	return l.store.session(ctx, func(s *bareSession) error {
		for some := range slices.Chunk(bodies, l.batch) {
			if texts[len(some)] == "" {
				texts[len(some)] = l.store.named(boundText + strings.Repeat(", (?, ?1, ?1, ?)", len(some)-1))
			}
			values := append(make([]any, 0, 2*len(some)+1), time.Now().UnixMilli())
			for _, body := range some {
				id := chanq.NewID()
				values = append(values, id[:], body)
			}
			if err := s.do(sqlbatch.Statement{Text: texts[len(some)], Args: values}, nil); err != nil {
				return err
			}
			stored()
		}
		return nil
	})
}

const boundText = `INSERT INTO {live} (id, due_at, enqueued_at, body) VALUES (?2, ?1, ?1, ?3)`

// takeRangesSQLite leases a range of the claim index by one row of another table, and deletes the
// range when its messages are done. No message is updated. The next lease takes the place of the
// last one. A batch has twice the messages of a statement, as chanq's claims.
func takeRangesSQLite(ctx context.Context, l bestLoop, n int, more func(context.Context) error) error {
	lease, read, ack := l.store.named(sqliteLeaseText), l.store.named(sqliteRangeText), l.store.named(sqliteAckText)
	return l.store.session(ctx, func(s *bareSession) error {
		var due int64
		var id []byte
		for left := n; left > 0; {
			due = 0
			lease := sqlbatch.Statement{Text: lease, Args: []any{time.Now().UnixMilli(), leaseFor.Milliseconds(), 2 * l.batch}}
			if err := s.do(lease, func(rows *sql.Rows) error { return rows.Scan(&due, &id) }); err != nil {
				return err
			}
			if due == 0 {
				if err := more(ctx); err != nil {
					return err
				}
				continue
			}
			bodies, err := s.bodies(sqlbatch.Statement{Text: read, Args: []any{due, id}})
			if err != nil {
				return err
			}
			left = l.receive(bodies, left)
			if err := s.exec(int64(len(bodies)), ack, due, id); err != nil {
				return err
			}
		}
		return nil
	})
}

const (
	sqliteRangesText = `CREATE TABLE {ranges} (worker INTEGER PRIMARY KEY, due_at INTEGER NOT NULL, id BLOB NOT NULL, lease_until INTEGER NOT NULL)`

	sqliteLeaseText = `REPLACE INTO {ranges} (worker, due_at, id, lease_until) SELECT 1, due_at, id, ?1 + ?2 FROM (
  SELECT due_at, id FROM {live} WHERE priority = 0 AND due_at <= ?1 ORDER BY due_at, id LIMIT ?3
) ORDER BY due_at DESC, id DESC LIMIT 1
RETURNING due_at, id`

	sqliteRangeText = `SELECT body FROM {live} WHERE priority = 0 AND (due_at, id) <= (?1, ?2) ORDER BY due_at, id`

	// A message that was committed late into a range would be deleted unseen: the loop compares the
	// numbers, and relies on one sender in order.
	sqliteAckText = `DELETE FROM {live} WHERE priority = 0 AND (due_at, id) <= (?1, ?2)`
)

// exec runs a statement that must change so many rows.
func (s *bareSession) exec(rows int64, text string, args ...any) error {
	result, err := s.on.ExecContext(s.ctx, text, args...)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed != rows {
		err = fmt.Errorf("changed %d of %d messages", changed, rows)
	}
	return err
}

// bodies returns the only column of a statement's rows, copied, since a handler would keep it.
func (s *bareSession) bodies(st sqlbatch.Statement) (bodies [][]byte, err error) {
	var body sql.RawBytes
	into := []any{&body}
	err = s.do(st, func(rows *sql.Rows) error {
		err := rows.Scan(into...)
		bodies = append(bodies, s.keep(body))
		return err
	})
	return bodies, err
}
