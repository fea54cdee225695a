SELECT min(f.visible_at) - (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS due_in
FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
  CROSS JOIN LATERAL ((
    SELECT q.visible_at FROM "public"."chanq_orders" AS q
    WHERE q.priority = p.priority AND q.leased_by IS NOT NULL
    ORDER BY q.visible_at LIMIT 1) UNION ALL (
    SELECT q.visible_at FROM "public"."chanq_orders" AS q
    WHERE q.priority = p.priority AND q.leased_by IS NULL
    ORDER BY q.visible_at LIMIT 1)) AS f
WHERE NOT EXISTS (SELECT 1 FROM "public"."chanq_queues" WHERE name = 'orders' AND paused);
