SELECT s.slot, s.consumer, CASE WHEN s.consumer IS NOT NULL THEN coalesce(o.until - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0) END, s.fence,
  (SELECT count(*) FROM "main"."chanq__consumers" AS m WHERE m.queue = 'orders' AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
FROM "main"."chanq__slots" AS s
LEFT JOIN "main"."chanq__consumers" AS o ON o.id = s.consumer
WHERE s.queue = 'orders'
ORDER BY s.slot;
