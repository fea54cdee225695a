SELECT s.slot, s.member, CASE WHEN s.member IS NOT NULL THEN coalesce(o.until - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0) END, s.fence,
  (SELECT count(*) FROM "main"."chanq_members" AS m WHERE m.queue = 'orders' AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  CASE WHEN p.slot IS NOT NULL AND NOT (SELECT paused FROM "main"."chanq_queues" WHERE name = 'orders') THEN (
    SELECT min(due_at) FROM (
      SELECT q.due_at FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due"
      WHERE q.slot = p.slot AND q.seq > p.seq AND p.most > 0 AND q.lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY q.seq LIMIT ?2 + 0)) - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) END
FROM "main"."chanq_slots" AS s
LEFT JOIN "main"."chanq_members" AS o ON o.id = s.member
LEFT JOIN (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 47 FROM n WHERE o + 47 < length(?1))
  SELECT o, CAST(substr(?1, o, 4) AS INTEGER) AS slot, CAST(substr(?1, o + 4, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 23, 19) AS INTEGER) AS seq, CAST(substr(?1, o + 42, 5) AS INTEGER) AS most
  FROM n WHERE length(?1) > 1) AS p ON p.slot = s.slot
WHERE s.queue = 'orders'
ORDER BY s.slot;
