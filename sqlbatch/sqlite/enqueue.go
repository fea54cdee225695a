package sqlite

import (
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Statements of producers and settles. {live} and the like are names. The same counter walks every packed list ?1, o being the
// offset of a record. The counter is left of a CROSS JOIN, which SQLite never reorders: the list outside, the unique index on id
// inside.

// Enqueue: record = id 16, priority+1 1, delay 13, time to live 13 (0: permanently), key offset 9 and length 3, headers offset 9
// and length 6, body offset 9 and length 9, type length 3, which ends where the headers begin. Numbers are decimal digits, because
// SQLite casts digits, not bytes, to integers. ?3 is 1 if a row has more than a body. Otherwise nothing else is unpacked, which saves
// a tenth of the time of the statement (BenchmarkSQLite).
const rowSize = 16 + 1 + 13 + 13 + 9 + 3 + 9 + 6 + 9 + 9 + 3

// For an ordered queue slot 4, order key offset 9 and length 3 follow.
const orderSize = 4 + 9 + 3

const enqueueText = `INSERT INTO {live} (id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body{sent})
SELECT id, priority, t.now + delay, t.now, t.now + ttl, dedup_key, type, headers, body{sent columns}
FROM (SELECT {now} AS now) AS t CROSS JOIN (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + {row size} FROM n WHERE o + {row size} < length(?1))
  SELECT substr(?1, o, 16) AS id,
         iif(?3, CAST(substr(?1, o + 16, 1) AS INTEGER) - 1, 0) AS priority,
         iif(?3, CAST(substr(?1, o + 17, 13) AS INTEGER), 0) AS delay,
         iif(?3, CAST(nullif(substr(?1, o + 30, 13), x'30303030303030303030303030') AS INTEGER), NULL) AS ttl,
         CASE WHEN ?3 AND substr(?1, o + 52, 3) > x'303030' THEN CAST(substr(?2, CAST(substr(?1, o + 43, 9) AS INTEGER), CAST(substr(?1, o + 52, 3) AS INTEGER)) AS TEXT) END AS dedup_key,
         CASE WHEN ?3 AND substr(?1, o + 88, 3) > x'303030' THEN CAST(substr(?2, CAST(substr(?1, o + 55, 9) AS INTEGER) - CAST(substr(?1, o + 88, 3) AS INTEGER), CAST(substr(?1, o + 88, 3) AS INTEGER)) AS TEXT) END AS type,
         CASE WHEN ?3 AND substr(?1, o + 64, 6) > x'303030303030' THEN substr(?2, CAST(substr(?1, o + 55, 9) AS INTEGER), CAST(substr(?1, o + 64, 6) AS INTEGER)) END AS headers,
         substr(?2, CAST(substr(?1, o + 70, 9) AS INTEGER), CAST(substr(?1, o + 79, 9) AS INTEGER)) AS body{sent values}
  FROM n) AS r`

// numberOf is the number of a row of an ordered queue, and its first fence: AUTOINCREMENT would assign the same.
const numberOf = `r.place + (SELECT coalesce((SELECT z.seq FROM {sequence} AS z WHERE z.name = {live_text}), 0))`

// sentValues is {sent values} of an ordered queue.
const sentValues = `,
         (o - 1) / 107 + 1 AS place,
         CAST(substr(?1, o + 91, 4) AS INTEGER) AS slot,
         CASE WHEN substr(?1, o + 104, 3) > x'303030' THEN CAST(substr(?2, CAST(substr(?1, o + 95, 9) AS INTEGER), CAST(substr(?1, o + 104, 3) AS INTEGER)) AS TEXT) END AS order_key`

// WHERE true keeps ON CONFLICT from being parsed as a join condition.
const enqueueNewText = enqueueText + `
WHERE true
ON CONFLICT DO NOTHING
RETURNING id`

// overText returns the upsert that keeps queued messages with the keys of rows, or replaces them by set. A leased one has lost its key by
// unkeyText before. The order of the two clauses matters: a row whose id exists changes nothing.
func overText(set string) string {
	return enqueueText + `
WHERE true
ON CONFLICT (id) DO NOTHING
ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO UPDATE SET ` + set + `
RETURNING id, dedup_key`
}

const (
	unkeyText = `UPDATE {live} SET dedup_key = NULL WHERE rowid IN (SELECT q.rowid FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + {row size} FROM n WHERE o + {row size} < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?2, CAST(substr(?1, o + 43, 9) AS INTEGER), CAST(substr(?1, o + 52, 3) AS INTEGER)) AS TEXT) AS dedup_key
  FROM n) AS r CROSS JOIN {live} AS q ON q.dedup_key = r.dedup_key AND q.dedup_key IS NOT NULL
WHERE q.leased_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {live} AS e WHERE e.id = r.id))`

	// keeping lets the message expire at the later of the two ends, NULL for never, so that the second send is handled in its time.
	keeping = `expires_at = max(expires_at, excluded.expires_at)`

	// replacing keeps the due time, but a message that moves to another priority is not due before now, where a claim begins to read. ?4 is
	// DebounceMax, NULL for none: a message that waits longer is due. The time to live of a message that is due later begins then.
	replacing = `fence = fence + 1, attempts = 0, lapses = 0, last_error = NULL, history = NULL, priority = excluded.priority,
  due_at = CASE WHEN enqueued_at + ?4 > excluded.enqueued_at THEN min(excluded.due_at, enqueued_at + ?4)
                WHEN due_at > excluded.enqueued_at AND ?4 IS NOT NULL THEN excluded.enqueued_at
                WHEN due_at < excluded.enqueued_at AND priority <> excluded.priority THEN excluded.enqueued_at
                ELSE due_at END,
  expires_at = CASE WHEN ?4 IS NULL THEN max(excluded.expires_at, due_at + excluded.expires_at - excluded.enqueued_at) ELSE excluded.expires_at END,
  type = excluded.type, headers = excluded.headers, body = excluded.body`
)

func (q *queue) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement { return q.packRows(q.enqueue, rows) }

// EnqueueBegun is Enqueue: with one writer at a time rows are always in order.
func (q *queue) EnqueueBegun(rows []sqlbatch.Row) sqlbatch.Statement { return q.Enqueue(rows) }

// Begun has no text: the numbers are those of the rows.
func (q *queue) Begun() sqlbatch.Statement { return sqlbatch.Statement{} }

func (q *queue) EnqueueNew(rows []sqlbatch.Row) sqlbatch.Statement {
	return q.packRows(q.enqueueNew, rows)
}

func (q *queue) EnqueueOver(rows []sqlbatch.Row) sqlbatch.Statement {
	if q.ordered {
		return sqlbatch.Statement{}
	}
	mode, most := build.Over(rows)
	st := q.packRows(q.keep, rows)
	st.Prior = []sqlbatch.Statement{{Text: q.unkey, Args: st.Args[:2]}}
	if mode != sqlbatch.KeepQueued {
		st.Text, st.Args = q.replace, append(st.Args, most)
	}
	return st
}

func (q *queue) packRows(text string, rows []sqlbatch.Row) sqlbatch.Statement {
	size := 0
	for i := range rows {
		size += len(rows[i].Key) + len(rows[i].Type) + len(rows[i].OrderKey) + len(rows[i].Headers) + len(rows[i].Body)
	}
	list := make([]byte, 0, len(rows)*(rowSize+orderSize))
	data := make([]byte, 0, size)
	more := int64(0)
	for i := range rows {
		row := &rows[i]
		if row.Priority != 0 || row.Delay > 0 || row.TTL > 0 || row.Key != "" || row.Type != "" || len(row.Headers) > 0 {
			more = 1
		}
		list = append(list, row.ID[:]...)
		list = append(list, '0'+byte(row.Priority-sqlbatch.PriorityLow))
		list = appendDigits(list, build.Milliseconds(row.Delay), 13)
		list = appendDigits(list, build.Milliseconds(row.TTL), 13)
		list = appendDigits(list, int64(len(data)+1), 9)
		list = appendDigits(list, int64(len(row.Key)), 3)
		data = append(append(data, row.Key...), row.Type...)
		list = appendDigits(list, int64(len(data)+1), 9)
		list = appendDigits(list, int64(len(row.Headers)), 6)
		data = append(data, row.Headers...)
		list = appendDigits(list, int64(len(data)+1), 9)
		list = appendDigits(list, int64(len(row.Body)), 9)
		data = append(data, row.Body...)
		list = appendDigits(list, int64(len(row.Type)), 3)
		if q.ordered {
			list = appendDigits(list, int64(row.Slot), 4)
			list = appendDigits(list, int64(len(data)+1), 9)
			list = appendDigits(list, int64(len(row.OrderKey)), 3)
			data = append(data, row.OrderKey...)
		}
	}
	if len(data) == 0 {
		data = []byte{0} // the driver binds an empty blob as NULL, and every part of NULL is NULL
	}
	return sqlbatch.Statement{Text: text, Args: []any{list, data, more}}
}
