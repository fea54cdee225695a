WITH t AS MATERIALIZED (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now, ((SELECT count(*) FROM (
    WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 24 FROM n WHERE o + 24 < length(?2))
    SELECT CAST(substr(?2, o, 4) AS INTEGER) AS slot, CAST(substr(?2, o + 4, 19) AS INTEGER) AS fence, substr(?2, o + 23, 1) = x'31' AS doubt FROM n WHERE length(?2) > 1) AS p
  CROSS JOIN "main"."chanq__slots" AS s ON s.queue = 'orders' AND s.slot = p.slot AND s.fence = p.fence AND s.consumer = ?1) = ?3
  AND EXISTS (SELECT 1 FROM "main"."chanq__consumers" AS m WHERE m.id = ?1 AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) AND NOT (SELECT paused FROM "main"."chanq__queues" WHERE name = 'orders')) AS walked)
SELECT q.id, q.priority, q.fence, min(q.attempts + (q.leased_by IS NOT ?1), 2000000000) AS attempts, min(q.lapses + (q.leased_by IS NOT NULL AND q.leased_by <> ?1), 32767) AS lapses, coalesce(q.expires_at <= t.now, 0) AS expired, q.enqueued_at, q.due_at, q.expires_at,
  CASE WHEN 1 THEN q.dedup_key END AS dedup_key, CASE WHEN 1 THEN q.type END AS type, CASE WHEN 1 THEN q.headers END AS headers, CASE WHEN 1 THEN q.body END AS body, CASE WHEN q.body >= x'' THEN length(q.body) ELSE length(CAST(q.body AS BLOB)) END AS size,
  q.slot, q.seq, q.order_key, max(q.due_at - t.now, iif(q.leased_by IS ?1, 0, q.lease_until - t.now), 0) AS wait, iif(q.expires_at IS NULL, 0, max(q.expires_at - t.now, 1)) AS lives,
  CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = ?1 THEN 1 ELSE 2 END AS holder, CASE WHEN q.order_key IS NOT NULL AND (SELECT holds FROM "main"."chanq__queues" WHERE name = 'orders') AND EXISTS (SELECT 1 FROM "main"."chanq_orders__dead" AS d WHERE d.slot = q.slot AND d.order_key = q.order_key) THEN 1 ELSE 0 END AS held,
  (1) AS given, 0 AS locked
FROM t CROSS JOIN (WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 16 FROM n WHERE o + 16 < length(?5)) SELECT substr(?5, o, 16) AS id FROM n) AS a
CROSS JOIN "main"."chanq_orders" AS q ON q.id = a.id
WHERE t.walked AND substr(?4, q.slot + 1, 1) = '1'
UNION ALL
SELECT NULL, t.walked, coalesce((SELECT z.seq FROM "main"."sqlite_sequence" AS z WHERE z.name = 'chanq_orders'), 0), 0, 0, 0, (SELECT redriven FROM "main"."chanq__queues" WHERE name = 'orders'), 0, NULL, NULL, NULL, NULL, x'', 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0 FROM t;
