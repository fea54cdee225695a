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
const enqueueText = `INSERT INTO {live} (id, priority, due_at, enqueued_at, expires_at, dedup_key, headers, body)
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

// enqueueBegunText is the same, with the time when the transaction began.
var enqueueBegunText = strings.Replace(enqueueText, "{now}", "{begun}", 1)

// enqueueNewText leaves out rows whose id or key is there. It waits for
// another insert of the same id or key under way; rows come in the order of
// their keys, so that two of these never wait for each other.
const enqueueNewText = enqueueText + `
ON CONFLICT DO NOTHING
RETURNING uuid_send(id)`

func (q *queue) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement { return rowList(q.enqueue, rows) }

func (q *queue) EnqueueBegun(rows []sqlbatch.Row) sqlbatch.Statement {
	return rowList(q.begun, rows)
}

func (q *queue) EnqueueNew(rows []sqlbatch.Row) sqlbatch.Statement {
	return rowList(q.enqueueNew, sortedBy(rows, func(a, b sqlbatch.Row) int { return strings.Compare(a.Key, b.Key) }))
}

func rowList(text string, rows []sqlbatch.Row) sqlbatch.Statement {
	named, body := 0, 0
	for i := range rows {
		named += len(rows[i].Key) + len(rows[i].Headers)
		body += len(rows[i].Body)
	}
	n := len(rows)
	ids, priorities, keys := newArray(n, 32), newArray(n, 2), newArray(n, 3)
	delays, ttls := newArray(n, 8), newArray(n, 8)
	names, bodies := newBlob(n, named), newBlob(n, body)
	for i := range rows {
		row := &rows[i]
		ids.id(row.ID)
		priorities.number(int64(row.Priority))
		delays.number(build.Milliseconds(row.Delay))
		ttls.number(build.Milliseconds(row.TTL))
		keys.number(int64(len(row.Key)))
		names.next(len(row.Key) + len(row.Headers))
		names.data = append(append(names.data, row.Key...), row.Headers...)
		bodies.next(len(row.Body))
		bodies.data = append(bodies.data, row.Body...)
	}
	namesAt, namesBytes := names.place()
	bodyAt, bodyBytes := bodies.place()
	return sqlbatch.Statement{Text: text, Args: []any{
		ids.literal(), priorities.orEmpty(), delays.orEmpty(), ttls.orEmpty(), keys.orEmpty(),
		namesAt, namesBytes, bodyAt, bodyBytes, names.data, bodies.data,
	}}
}
