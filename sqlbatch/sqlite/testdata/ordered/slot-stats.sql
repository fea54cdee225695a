WITH first AS MATERIALIZED (SELECT slot, order_key, due_at, lease_until, enqueued_at FROM "main"."chanq_orders" ORDER BY seq LIMIT ?1 + 0)
SELECT s.slot, (SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = s.consumer),
  (SELECT count(*) FROM first AS f WHERE f.slot = s.slot),
  (SELECT count(*) FROM first AS f WHERE f.slot = s.slot AND (f.due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) OR f.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))),
  (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - min(f.enqueued_at) FROM first AS f WHERE f.slot = s.slot),
  (SELECT f.order_key FROM first AS f WHERE f.slot = s.slot AND f.order_key IS NOT NULL GROUP BY f.order_key ORDER BY count(*) DESC, f.order_key LIMIT 1),
  coalesce((SELECT count(*) FROM first AS f WHERE f.slot = s.slot AND f.order_key IS NOT NULL GROUP BY f.order_key ORDER BY count(*) DESC, f.order_key LIMIT 1), 0)
FROM "main"."chanq__slots" AS s WHERE s.queue = 'orders' ORDER BY s.slot;
