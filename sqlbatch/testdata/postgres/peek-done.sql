SELECT 'done' AS state,
  uuid_send(q.id) AS id, q.priority, q.fence, q.attempts, q.enqueued_at, q.ended_at AS due_at, NULL::text AS leased_by, q.dedup_key, q.last_error, q.headers, q.body
FROM "public"."chanq_orders_done" AS q
ORDER BY q.ended_at DESC, q.id DESC LIMIT $1::integer;
