SELECT min(f.due_at) - (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS due_in
FROM (VALUES (2, $4::bigint, $8::bytea), (1, $3::bigint, $7::bytea), (0, $2::bigint, $6::bytea), (-1, $1::bigint, $5::bytea)) AS p (priority, head, head_id)
CROSS JOIN LATERAL (
  SELECT q.due_at FROM "public"."chanq_orders" AS q
  WHERE q.priority = p.priority AND (q.due_at, uuid_send(q.id)) >= (least(p.head, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 250), CASE WHEN p.head <= (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 250 THEN p.head_id ELSE ''::bytea END) AND (q.leased_by IS NOT NULL)::integer <> 1
  ORDER BY q.due_at LIMIT 1) AS f
WHERE NOT EXISTS (SELECT 1 FROM "public"."chanq__queues" WHERE name = 'orders' AND paused);
