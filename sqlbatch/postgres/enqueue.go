package postgres

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// enqueueText inserts one row for each element of its lists, in their order. $10 has keys, types and headers, $11
// bodies, and $6 the lengths of keys and types. Each large parameter is written once, since a plan made for its values
// copies it at each use.
//
// It takes no lock that others wait for, except for another insert of the same id or key, which waits until this
// transaction ends.
const plainEnqueueText = `INSERT INTO {live} (` + sentColumns + `)
` + plainRowsText

const sentColumns = `id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body`

const plainRowsText = `SELECT r.id, r.priority, t.now + r.delay, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN r.type > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.type), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.type THEN substring(r.names FROM r.key + r.type + 1) END,
       r.body
FROM (SELECT {now} AS now) AS t
CROSS JOIN (
  SELECT a.id, coalesce(a.priority, 0) AS priority, coalesce(a.delay, 0) AS delay, nullif(a.ttl, 0) AS ttl, coalesce(a.key & 255, 0) AS key, coalesce(a.key >> 8, 0) AS type,
         CASE WHEN a.names > 0 THEN substring($10::bytea FROM a.names_at FOR a.names) END AS names,
         substring($11::bytea FROM coalesce(a.body_at, 1) FOR coalesce(a.body, 0)) AS body
  FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[])
    AS a (id, priority, delay, ttl, key, names_at, names, body_at, body)
  OFFSET 0
) AS r`

// orderedEnqueueText inserts into an ordered queue. $9 has deduplication keys, types and headers, $10 each row's order
// key and its body; $7 has their lengths and the slot: shapeOf. $8 has the places of rows that are not in order. Each
// list costs a statement more time than the rest of the order does, so there are only as many lists as for a plain
// queue.
//
// Before it draws its number it takes a lock that all senders share until the end of their transactions, and that is
// never taken exclusively: see sampled. Both happen once per statement, when its first row is made.
const orderedEnqueueText = `INSERT INTO {live} (id, due_at, enqueued_at, expires_at, dedup_key, type, headers, body, slot, seq, fence, order_key)
SELECT r.id, t.now, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN r.type > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.type), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.type THEN substring(r.names FROM r.key + r.type + 1) END,
       r.body, r.slot, t.number * {seqs} + r.place, t.number * {seqs} + r.place, r.order_key
FROM (SELECT {now} AS now, (` + drawText + `) AS number) AS t
CROSS JOIN (
  SELECT a.id, nullif(a.ttl, 0) AS ttl, coalesce(a.key & 255, 0) AS key, coalesce(a.key >> 8, 0) AS type, (a.shape >> 40)::smallint AS slot, coalesce(a.place, a.o) AS place,
         CASE WHEN a.names > 0 THEN substring($9::bytea FROM a.names_at FOR a.names) END AS names,
         CASE WHEN a.shape & (255::bigint << 32) <> 0 THEN convert_from(substring($10::bytea FROM a.at FOR (a.shape >> 32)::integer & 255), 'UTF8') END AS order_key,
         substring($10::bytea FROM a.at + ((a.shape >> 32)::integer & 255) FOR (a.shape & 4294967295)::integer) AS body
  FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::bigint[], $8::integer[]) WITH ORDINALITY
    AS a (id, ttl, key, names_at, names, at, shape, place, o)
  OFFSET 0
) AS r`

// shapeOf packs the slot of a row, and the lengths of its order key and its body.
func shapeOf(row *sqlbatch.Row) int64 {
	return int64(row.Slot)<<40 | int64(len(row.OrderKey))<<32 | int64(len(row.Body))
}

const (
	// sending takes this queue's lock of senders: chno, as a number, and a hash of the queue's name.
	sending = `pg_advisory_xact_lock_shared({senders}, hashtext({'live'}))`

	// drawText draws a number while it holds that lock. The inner SELECT runs first, since OFFSET keeps it separate.
	drawText = `SELECT nextval({'numbers'}::regclass) FROM (SELECT ` + sending + ` AS held OFFSET 0) AS s WHERE s.held IS NOT NULL`
)

func enqueueText(ordered bool) string {
	if ordered {
		return orderedEnqueueText
	}
	return plainEnqueueText
}

// enqueueBegunText is the same, with the start time of the transaction, and the number that it has drawn.
func enqueueBegunText(ordered bool) string {
	return strings.NewReplacer("{now}", "{begun}", drawText, `SELECT currval({'numbers'}::regclass)`).Replace(enqueueText(ordered))
}

// newOnly leaves out rows whose id or key already exists. It waits for another insert of the same id or key in
// progress. Rows are in the order of their keys, so that two of these statements never wait for each other.
const newOnly = `
ON CONFLICT DO NOTHING
RETURNING uuid_send(id)`

// overText returns the statement that keeps queued messages with the keys of rows, or replaces them by set. Leased messages lose their keys
// first: the count makes the INSERT wait for that, and the unique index does not count what this statement has updated. ON CONFLICT decides
// by the newest version of a message, so one that is leased meanwhile is neither changed nor returned. $12 is DebounceMax, NULL for none.
//
// It locks messages in the order of their keys, first the leased ones. If two statements differ in which these are, one of them might
// fail with class RolledBack.
func overText(set string) string {
	return `WITH r AS MATERIALIZED (
  SELECT * FROM (
` + plainRowsText + `) AS s (` + sentColumns + `)
  WHERE NOT EXISTS (SELECT 1 FROM {live} AS e WHERE e.id = s.id OFFSET 0)
),
leased AS MATERIALIZED (
  UPDATE {live} AS q SET dedup_key = NULL
  FROM r
  WHERE q.dedup_key = ANY (ARRAY[r.dedup_key]) AND q.dedup_key IS NOT NULL AND q.leased_by IS NOT NULL
  RETURNING q.id
)
INSERT INTO {live} AS q (` + sentColumns + `)
SELECT ` + sentColumns + ` FROM r WHERE (SELECT count(*) FROM leased) >= 0
ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO UPDATE SET ` + set + `
WHERE q.leased_by IS NULL
RETURNING uuid_send(q.id), ` + textBytes("q.dedup_key")
}

const (
	// keeping locks the message: a claim before the end of the transaction would handle the state before it. It expires at the later of the
	// two ends, NULL for never, so that the second send is handled in its time.
	keeping = `expires_at = CASE WHEN q.expires_at IS NOT NULL AND excluded.expires_at IS NOT NULL THEN greatest(q.expires_at, excluded.expires_at) END`

	// replacing keeps the due time, but a message that moves to another priority is not due before now, where a claim begins to read. A
	// message that waits longer than $12 is due. The time to live of a message that is due later begins then.
	replacing = `fence = q.fence + 1, attempts = 0, lapses = 0, last_error = NULL, history = NULL, priority = excluded.priority,
  due_at = CASE WHEN q.enqueued_at + $12::bigint > excluded.enqueued_at THEN least(excluded.due_at, q.enqueued_at + $12::bigint)
                WHEN q.due_at > excluded.enqueued_at AND $12::bigint IS NOT NULL THEN excluded.enqueued_at
                WHEN q.due_at < excluded.enqueued_at AND q.priority <> excluded.priority THEN excluded.enqueued_at
                ELSE q.due_at END,
  expires_at = CASE WHEN $12::bigint IS NULL THEN greatest(excluded.expires_at, q.due_at + excluded.expires_at - excluded.enqueued_at) ELSE excluded.expires_at END,
  type = excluded.type, headers = excluded.headers, body = excluded.body`
)

func (q *queue) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement { return q.rowList(q.enqueue, rows) }

func (q *queue) EnqueueBegun(rows []sqlbatch.Row) sqlbatch.Statement {
	return q.rowList(q.begun, rows)
}

// Begun draws before the INSERT, which then runs at the same time as that of another batch: numbers are in the order of
// batches.
func (q *queue) Begun() sqlbatch.Statement { return sqlbatch.Statement{Text: q.begin} }

func (q *queue) EnqueueNew(rows []sqlbatch.Row) sqlbatch.Statement {
	byKey := sortedBy(rows, func(a, b sqlbatch.Row) int { return strings.Compare(a.Key, b.Key) })
	st := q.rowList(q.enqueueNew, byKey)
	if q.ordered && len(rows) > 0 && &byKey[0] != &rows[0] {
		st.Args[placesArg] = places(rows, byKey)
	}
	return st
}

func (q *queue) EnqueueOver(rows []sqlbatch.Row) sqlbatch.Statement {
	if q.ordered {
		return sqlbatch.Statement{}
	}
	mode, most := build.Over(rows)
	st := q.rowList(q.keep, sortedBy(rows, func(a, b sqlbatch.Row) int { return strings.Compare(a.Key, b.Key) }))
	if mode != sqlbatch.KeepQueued {
		st.Text, st.Args = q.replace, append(st.Args, most)
	}
	return st
}

// placesArg is $8 of orderedEnqueueText.
const placesArg = 7

// places returns the original places, from 1 on, of rows that were reordered.
func places(rows, moved []sqlbatch.Row) string {
	at := make(map[[16]byte]int64, len(rows))
	for i := range rows {
		at[rows[i].ID] = int64(i + 1)
	}
	list := newArray(len(rows), 4)
	for i := range moved {
		list.number(at[moved[i].ID])
	}
	return list.literal()
}

func (q *queue) rowList(text string, rows []sqlbatch.Row) sqlbatch.Statement {
	if q.ordered {
		return orderedRowList(text, rows)
	}
	body := 0
	for i := range rows {
		body += len(rows[i].Body)
	}
	n := len(rows)
	priorities, delays := newArray(n, 2), newArray(n, 8)
	bodies := newBlob(n, body)
	for i := range rows {
		row := &rows[i]
		priorities.number(int64(row.Priority))
		delays.number(build.Milliseconds(row.Delay))
		bodies.next(len(row.Body))
		bodies.data = append(bodies.data, row.Body...)
	}
	bodyAt, bodyBytes := bodies.place()
	l := packNamed(rows)
	return sqlbatch.Statement{Text: text, Args: []any{
		l.ids, priorities.orEmpty(), delays.orEmpty(), l.ttls, l.keys, l.at, l.bytes, bodyAt, bodyBytes, l.names, bodies.data,
	}}
}

func orderedRowList(text string, rows []sqlbatch.Row) sqlbatch.Statement {
	data := 0
	for i := range rows {
		data += len(rows[i].OrderKey) + len(rows[i].Body)
	}
	n := len(rows)
	shapes, linesAndBodies := newArray(n, 14), newBlob(n, data)
	for i := range rows {
		row := &rows[i]
		shapes.number(shapeOf(row))
		linesAndBodies.next(len(row.OrderKey) + len(row.Body))
		linesAndBodies.data = append(append(linesAndBodies.data, row.OrderKey...), row.Body...)
	}
	l := packNamed(rows)
	return sqlbatch.Statement{Text: text, Args: []any{
		l.ids, l.ttls, l.keys, l.at, l.bytes, linesAndBodies.starts.literal(), shapes.literal(), "{}", l.names, linesAndBodies.data,
	}}
}

// named has the lists that both kinds of queues have: ids, times to live, and values that few messages have: a dedup
// key, a type and headers.
type named struct {
	ids, ttls, keys, at, bytes string
	names                      []byte
}

func packNamed(rows []sqlbatch.Row) named {
	size := 0
	for i := range rows {
		size += len(rows[i].Key) + len(rows[i].Type) + len(rows[i].Headers)
	}
	n := len(rows)
	ids, ttls, keys, names := newArray(n, 32), newArray(n, 8), newArray(n, 3), newBlob(n, size)
	for i := range rows {
		row := &rows[i]
		ids.id(row.ID)
		ttls.number(build.Milliseconds(row.TTL))
		keys.number(int64(len(row.Type))<<8 | int64(len(row.Key)))
		names.next(len(row.Key) + len(row.Type) + len(row.Headers))
		names.data = append(append(append(names.data, row.Key...), row.Type...), row.Headers...)
	}
	at, bytes := names.place()
	return named{ids.literal(), ttls.orEmpty(), keys.orEmpty(), at, bytes, names.data}
}
