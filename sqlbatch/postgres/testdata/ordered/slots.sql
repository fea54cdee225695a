WITH t AS MATERIALIZED (
  SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now,
         (SELECT count(*) FROM "public"."chanq_members" AS m WHERE m.queue = 'orders' AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) AS members,
         EXISTS (SELECT 1 FROM "public"."chanq_queues" WHERE name = 'orders' AND paused) AS paused
)
SELECT s.slot, uuid_send(s.member) AS owner, CASE WHEN s.member IS NOT NULL THEN coalesce(m.until - t.now, 0) END AS "left", s.fence, t.members,
       (SELECT min(e.due_at) FROM (
          SELECT f.due_at FROM (
            SELECT q.due_at FROM "public"."chanq_orders" AS q
            WHERE NOT t.paused AND (q.slot, q.seq) > (a.slot, a.seq) AND q.slot <= a.slot AND (q.lease_until > t.now)::integer <> 1
            ORDER BY q.slot, q.seq LIMIT 1000) AS f
          LIMIT a.most) AS e) - t.now AS due_in
FROM t
CROSS JOIN "public"."chanq_slots" AS s
LEFT JOIN "public"."chanq_members" AS m ON m.id = s.member
LEFT JOIN unnest($1::smallint[], $2::bigint[], $3::integer[]) AS a (slot, seq, most) ON a.slot = s.slot
WHERE s.queue = 'orders'
ORDER BY s.slot;
