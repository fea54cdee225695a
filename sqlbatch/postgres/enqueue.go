package postgres

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// enqueueText inserts one row for each element of its lists, in their
// order. $10 has keys and headers, $11 bodies; each parameter of any size is
// written once, since a plan made for its values copies it where it stands.
//
// It takes no lock that others wait for, except for another insert of the same
// id or key, which waits until this transaction ends.
const plainEnqueueText = `INSERT INTO {live} (id, priority, due_at, enqueued_at, expires_at, dedup_key, headers, body)
SELECT r.id, r.priority, t.now + r.delay, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN length(r.names) > r.key THEN substring(r.names FROM r.key + 1) END,
       r.body
FROM (SELECT {now} AS now) AS t
CROSS JOIN (
  SELECT a.id, coalesce(a.priority, 0) AS priority, coalesce(a.delay, 0) AS delay, nullif(a.ttl, 0) AS ttl, coalesce(a.key, 0) AS key,
         CASE WHEN a.names > 0 THEN substring($10::bytea FROM a.names_at FOR a.names) END AS names,
         substring($11::bytea FROM coalesce(a.body_at, 1) FOR coalesce(a.body, 0)) AS body
  FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[])
    AS a (id, priority, delay, ttl, key, names_at, names, body_at, body)
  OFFSET 0
) AS r`

// orderedEnqueueText inserts into an ordered queue: $12 has the slots, $13 the lengths of
// order keys, which stand behind the other key, and $14 the places of rows that are not in order.
//
// Before it draws its number it takes a lock that every sender shares and nobody ever asks
// for alone, to the end of the transaction: see horizonText. Both are done once a statement,
// when its first row is made.
const orderedEnqueueText = `INSERT INTO {live} (id, due_at, enqueued_at, expires_at, dedup_key, headers, body, slot, seq, order_key)
SELECT r.id, t.now, t.now, t.now + r.ttl,
       CASE WHEN r.key > 0 THEN convert_from(substring(r.names FOR r.key), 'UTF8') END,
       CASE WHEN length(r.names) > r.key + r.line THEN substring(r.names FROM r.key + r.line + 1) END,
       r.body, r.slot, (t.number << {seq bits}) + r.place,
       CASE WHEN r.line > 0 THEN convert_from(substring(r.names FROM r.key + 1 FOR r.line), 'UTF8') END
FROM (SELECT {now} AS now, (` + drawText + `) AS number) AS t
CROSS JOIN (
  SELECT a.id, nullif(a.ttl, 0) AS ttl, coalesce(a.key, 0) AS key, coalesce(a.line, 0) AS line, coalesce(a.slot, 0) AS slot, coalesce(a.place, a.o) AS place,
         CASE WHEN a.names > 0 THEN substring($10::bytea FROM a.names_at FOR a.names) END AS names,
         substring($11::bytea FROM coalesce(a.body_at, 1) FOR coalesce(a.body, 0)) AS body
  FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[],
              $12::smallint[], $13::integer[], $14::integer[]) WITH ORDINALITY
    AS a (id, priority, delay, ttl, key, names_at, names, body_at, body, slot, line, place, o)
  OFFSET 0
) AS r`

const (
	// sending holds this queue's lock of senders: chno, as a number, and which queue it is.
	sending = `pg_advisory_xact_lock_shared({senders}, hashtext({'live'}))`

	// drawText draws a number while it holds that lock. The inner SELECT is made first, since
	// OFFSET keeps it apart.
	drawText = `SELECT nextval({'numbers'}::regclass) FROM (SELECT ` + sending + ` AS held OFFSET 0) AS s WHERE s.held IS NOT NULL`
)

func enqueueText(ordered bool) string {
	if ordered {
		return orderedEnqueueText
	}
	return plainEnqueueText
}

// enqueueBegunText is the same, with the time when the transaction began, and the number that
// it has drawn.
func enqueueBegunText(ordered bool) string {
	return strings.NewReplacer("{now}", "{begun}", drawText, `SELECT currval({'numbers'}::regclass)`).Replace(enqueueText(ordered))
}

// newOnly leaves out rows whose id or key is there. It waits for
// another insert of the same id or key under way; rows come in the order of
// their keys, so that two of these never wait for each other.
const newOnly = `
ON CONFLICT DO NOTHING
RETURNING uuid_send(id)`

func (q *queue) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement { return q.rowList(q.enqueue, rows) }

func (q *queue) EnqueueBegun(rows []sqlbatch.Row) sqlbatch.Statement {
	return q.rowList(q.begun, rows)
}

// Begun draws before the INSERT, which is then made beside that of another group: numbers come in
// the order of groups.
func (q *queue) Begun() sqlbatch.Statement { return sqlbatch.Statement{Text: q.begin} }

func (q *queue) EnqueueNew(rows []sqlbatch.Row) sqlbatch.Statement {
	byKey := sortedBy(rows, func(a, b sqlbatch.Row) int { return strings.Compare(a.Key, b.Key) })
	st := q.rowList(q.enqueueNew, byKey)
	if q.ordered && len(rows) > 0 && &byKey[0] != &rows[0] {
		st.Args[len(st.Args)-1] = places(rows, byKey)
	}
	return st
}

// places tells of rows that were put into another order where each of them was, from 1 on.
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
	named, body := 0, 0
	for i := range rows {
		named += len(rows[i].Key) + len(q.line(&rows[i])) + len(rows[i].Headers)
		body += len(rows[i].Body)
	}
	n := len(rows)
	ids, priorities, keys := newArray(n, 32), newArray(n, 2), newArray(n, 3)
	delays, ttls := newArray(n, 8), newArray(n, 8)
	slots, lines := newArray(n, 4), newArray(n, 3)
	names, bodies := newBlob(n, named), newBlob(n, body)
	for i := range rows {
		row := &rows[i]
		ids.id(row.ID)
		priorities.number(int64(row.Priority))
		delays.number(build.Milliseconds(row.Delay))
		ttls.number(build.Milliseconds(row.TTL))
		keys.number(int64(len(row.Key)))
		slots.number(int64(row.Slot))
		line := q.line(row)
		lines.number(int64(len(line)))
		names.next(len(row.Key) + len(line) + len(row.Headers))
		names.data = append(append(append(names.data, row.Key...), line...), row.Headers...)
		bodies.next(len(row.Body))
		bodies.data = append(bodies.data, row.Body...)
	}
	namesAt, namesBytes := names.place()
	bodyAt, bodyBytes := bodies.place()
	args := []any{
		ids.literal(), priorities.orEmpty(), delays.orEmpty(), ttls.orEmpty(), keys.orEmpty(),
		namesAt, namesBytes, bodyAt, bodyBytes, names.data, bodies.data,
	}
	if q.ordered {
		args = append(args, slots.orEmpty(), lines.orEmpty(), "{}")
	}
	return sqlbatch.Statement{Text: text, Args: args}
}

// line is the order key, which a plain queue has no place for.
func (q *queue) line(row *sqlbatch.Row) string {
	if !q.ordered {
		return ""
	}
	return row.OrderKey
}
