package postgres

import (
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// joinText writes the consumer's own row first, and then deletes others without waiting for their locks: two joins
// never deadlock. This reads all of chanq__consumers, so a consumer does it only when it joins or joins again: a
// thousand members would otherwise read a thousand rows a hundred times per second.
const joinText = `WITH came AS MATERIALIZED (
  SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM {consumers} AS m WHERE m.id = $1::uuid AND m.until > {now})
),
here AS (
  INSERT INTO {consumers} AS m (id, since, until, heard_at, process, queue, name, host)
  SELECT $1::uuid, t.now, t.now + $2::bigint, t.now, $3::bigint, {name}, convert_from($4::bytea, 'UTF8'), convert_from($5::bytea, 'UTF8')
  FROM (SELECT {now} AS now) AS t
  ON CONFLICT (id) DO UPDATE SET
    until = greatest(m.until, excluded.until), heard_at = excluded.heard_at, process = excluded.process, queue = excluded.queue, name = excluded.name, host = excluded.host
  RETURNING m.id
)
DELETE FROM {consumers}
WHERE id = ANY (ARRAY(
  SELECT m.id FROM {consumers} AS m
  WHERE EXISTS (SELECT FROM came) AND m.until < {now} - 86400000 AND m.id <> ALL (ARRAY(SELECT id FROM here))
  LIMIT {rows} FOR UPDATE SKIP LOCKED))`

func (q *queue) Join(m sqlbatch.Consumer) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.join, Args: []any{
		hexID(m.ID), build.Milliseconds(m.For), int64(m.Process), []byte(consumerText(m.Name)), []byte(consumerText(m.Host)),
	}}
}

const leaveText = `DELETE FROM {consumers} WHERE id = $1::uuid AND queue = {name}`

func (q *queue) Leave(id [16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.leave, Args: []any{hexID(id)}}
}

const consumersText = `SELECT uuid_send(m.id) AS id, convert_to(m.name, {encoding}) AS name, convert_to(m.host, {encoding}) AS host, m.process, m.since, m.until, coalesce(m.heard_at, {now}) AS heard_at
FROM {consumers} AS m
WHERE m.queue = {name} AND m.until > {now}
ORDER BY m.since, m.id`

func (q *queue) Consumers() sqlbatch.Statement { return sqlbatch.Statement{Text: q.consumers} }
