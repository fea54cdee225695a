WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now, 2500 AS n
),
walked AS MATERIALIZED (
  SELECT * FROM (
    SELECT q.id, q.leased_by IS NOT NULL AND q.lease_until <= (SELECT now FROM t) AS lost
    FROM "public"."chanq_orders" AS q
    WHERE q.priority = $1::smallint AND (q.due_at, uuid_send(q.id)) >= ($2::bigint, $3::bytea) AND q.due_at <= (SELECT now FROM t)
    ORDER BY q.due_at, uuid_send(q.id) LIMIT 2500) AS w LIMIT (SELECT n FROM t)
),
chosen AS MATERIALIZED (
  SELECT q.id FROM walked AS w JOIN "public"."chanq_orders" AS q ON q.id = ANY (ARRAY[w.id])
  WHERE w.lost AND q.leased_by IS NOT NULL AND q.lease_until <= (SELECT now FROM t)
  FOR UPDATE OF q SKIP LOCKED
)
UPDATE "public"."chanq_orders" AS q
SET due_at = CASE WHEN q.lapses BETWEEN 1 AND $4::integer - 2 THEN (SELECT now FROM t) + floor(random() * CASE WHEN q.lapses = 1 THEN 60000 WHEN q.lapses = 2 THEN 120000 WHEN q.lapses = 3 THEN 240000 WHEN q.lapses = 4 THEN 480000 WHEN q.lapses = 5 THEN 960000 WHEN q.lapses = 6 THEN 1920000 ELSE 3600000 END)::bigint ELSE q.due_at END,
    lease_until = 0, fence = CASE WHEN q.fence > 8999998900488372224 THEN (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) << 20 ELSE q.fence + 1 END, lapses = least(q.lapses + 1, 32767), leased_by = NULL,
    history = left(least(q.lease_until, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) || ' ' || (least(q.lease_until, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) - (q.fence >> 20)) || ' ' || coalesce(left((SELECT m.name FROM "public"."chanq__consumers" AS m WHERE m.id = q.leased_by), 60), '') || chr(10) || 'the lease expired' || chr(30) || coalesce(q.history, ''), 2000)
FROM chosen AS c
WHERE q.id = ANY (ARRAY[c.id])
RETURNING uuid_send(q.id), q.priority, q.due_at;
