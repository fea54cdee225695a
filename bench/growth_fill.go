package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// fill inserts n messages of a state into the table by plain SQL, so that millions take seconds.
// Ready and leased messages became due one per millisecond, leased ones are held for an hour, and
// scheduled ones are due in an hour. Then it does the maintenance that such a table would have had:
// vacuum, statistics, checkpoint.
func (s *store) fill(ctx context.Context, state sqlbatch.State, n, body int) error {
	var texts []string
	switch s.place.Engine {
	case "sqlite":
		texts = []string{fillSQLite, `PRAGMA wal_checkpoint(TRUNCATE)`}
	case "postgres":
		texts = []string{fillPostgres, `VACUUM ANALYZE {live}`}
	default:
		return s.fillByStatements(ctx, state, n, body)
	}
	due, lease, fence := "now - {n} + i", "0", "0"
	switch state {
	case sqlbatch.Scheduled:
		due = "now + 3600000 + i"
	case sqlbatch.Leased:
		lease, fence = "now + 3600000", "1"
	}
	values := strings.NewReplacer("{live}", s.liveTable(), "{n}", fmt.Sprint(n), "{body}", fmt.Sprint(body), "{fence}", fence,
		"{due}", strings.ReplaceAll(due, "{n}", fmt.Sprint(n)), "{lease}", lease)
	for _, text := range texts {
		if n == 0 {
			break
		}
		if _, err := s.db.ExecContext(ctx, values.Replace(text)); err != nil {
			return err
		}
	}
	return nil
}

// liveTable is the name of the table of live messages, quoted.
func (s *store) liveTable() string {
	name := "chanq_" + s.place.Queue
	switch s.place.Engine {
	case "sqlserver":
		return "[dbo].[" + name + "]"
	case "postgres":
		return `"` + s.place.Schema + `"."` + name + `"`
	}
	return `"` + name + `"`
}

// IDs are UUIDv7 in the order of their messages, as those of NewID.
const fillPostgres = `INSERT INTO {live} (id, due_at, lease_until, enqueued_at, fence, attempts, priority, leased_by, body)
SELECT (lpad(to_hex(now - {n} + i), 12, '0') || '7' || lpad(to_hex(i % 4096), 3, '0') || '8' || lpad(to_hex(i), 15, '0'))::uuid,
       {due}, {lease}, now - {n} + i, {fence}, {fence}, 0, CASE {fence} WHEN 1 THEN gen_random_uuid() END, decode(repeat('5a', {body}), 'hex')
FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now) AS t, generate_series(1::bigint, {n}) AS g (i)`

const fillSQLite = `INSERT INTO {live} (id, priority, due_at, lease_until, enqueued_at, fence, attempts, leased_by, body)
SELECT unhex(printf('%012x7%03x8%015x', now - {n} + i, i % 4096, i)), 0, {due}, {lease}, now - {n} + i, {fence}, {fence}, CASE {fence} WHEN 1 THEN randomblob(16) END, zeroblob({body})
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now) AS t CROSS JOIN (
  WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < {n}) SELECT i FROM g)`

// fillByStatements uses chanq's statements, for an engine without its own fill.
func (s *store) fillByStatements(ctx context.Context, state sqlbatch.State, n, body int) error {
	row := sqlbatch.Row{Body: make([]byte, body)}
	if state == sqlbatch.Scheduled {
		row.Delay = time.Hour
	}
	return s.session(ctx, func(session *bareSession) error {
		for chunk := range slices.Chunk(slices.Repeat([]sqlbatch.Row{row}, n), 500) {
			for i := range chunk {
				chunk[i].ID = chanq.NewID()
			}
			if err := session.do(s.sql.Enqueue(chunk), nil); err != nil {
				return err
			}
		}
		consumer := chanq.NewID()
		for left := n; left > 0 && state == sqlbatch.Leased; left -= 500 {
			claim := sqlbatch.ClaimParams{Rows: min(left, 500), Lease: time.Hour, Consumer: consumer, Salt: 1, Inline: sqlbatch.MaxBody}
			if err := session.do(s.sql.Claim(claim), nil); err != nil {
				return err
			}
		}
		return nil
	})
}
