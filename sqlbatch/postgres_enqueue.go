package sqlbatch

import "strings"

// postgresEnqueue inserts one row for each element of its lists, in their
// order. $10 has keys and headers, $11 bodies; each parameter of any size is
// written once, since a plan made for its values copies it where it stands.
//
// It takes no lock that others wait for, except for another insert of the same
// id or key, which waits until this transaction ends.
const postgresEnqueue = `INSERT INTO {live} (id, priority, visible_at, enqueued_at, expires_at, dedup_key, headers, body)
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

// postgresEnqueueNew leaves out rows whose id or key is there. It waits for
// another insert of the same id or key under way; rows come in the order of
// their keys, so that two of these never wait for each other.
const postgresEnqueueNew = postgresEnqueue + `
ON CONFLICT DO NOTHING
RETURNING uuid_send(id)`

// postgresFind probes the primary key for each id and the index of keys for
// each key, and reads no other column than a producer may. It waits for nobody:
// the insert or settle whose outcome is asked for was repeated before, and the
// repetition waited for it.
const postgresFind = `SELECT uuid_send(q.id), convert_to(q.dedup_key, {encoding}), q.fence
FROM unnest((SELECT $1::uuid[])) AS a (id)
JOIN {live} AS q ON q.id = ANY (ARRAY[a.id])
UNION ALL
SELECT uuid_send(q.id), convert_to(q.dedup_key, {encoding}), 0
FROM unnest((SELECT $2::bytea[])) AS a (dedup_key)
JOIN {live} AS q ON q.dedup_key = ANY (ARRAY[convert_from(a.dedup_key, 'UTF8')]) AND q.dedup_key IS NOT NULL`

func (q *postgresQueue) Enqueue(rows []Row) Statement { return postgresRowList(q.enqueue, rows) }

func (q *postgresQueue) EnqueueNew(rows []Row) Statement {
	return postgresRowList(q.enqueueNew, sortedBy(rows, func(a, b Row) int { return strings.Compare(a.Key, b.Key) }))
}

func postgresRowList(text string, rows []Row) Statement {
	named, body := 0, 0
	for i := range rows {
		named += len(rows[i].Key) + len(rows[i].Headers)
		body += len(rows[i].Body)
	}
	n := len(rows)
	ids, priorities, keys := newPostgresArray(n, 32), newPostgresArray(n, 2), newPostgresArray(n, 3)
	delays, ttls := newPostgresArray(n, 8), newPostgresArray(n, 8)
	names, bodies := newPostgresBlob(n, named), newPostgresBlob(n, body)
	for i := range rows {
		row := &rows[i]
		ids.id(row.ID)
		priorities.number(int64(row.Priority))
		delays.number(milliseconds(row.Delay))
		ttls.number(milliseconds(row.TTL))
		keys.number(int64(len(row.Key)))
		names.next(len(row.Key) + len(row.Headers))
		names.data = append(append(names.data, row.Key...), row.Headers...)
		bodies.next(len(row.Body))
		bodies.data = append(bodies.data, row.Body...)
	}
	namesAt, namesBytes := names.place()
	bodyAt, bodyBytes := bodies.place()
	return Statement{Text: text, Args: []any{
		ids.literal(), priorities.orEmpty(), delays.orEmpty(), ttls.orEmpty(), keys.orEmpty(),
		namesAt, namesBytes, bodyAt, bodyBytes, names.data, bodies.data,
	}}
}

func (q *postgresQueue) Find(ids [][16]byte, keys []string) Statement {
	return Statement{Text: q.find, Args: []any{postgresIDs(ids), postgresKeys(keys)}}
}
