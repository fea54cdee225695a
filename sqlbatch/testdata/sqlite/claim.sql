UPDATE "main"."chanq_orders" SET due_at = visible_at, visible_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + ?2, fence = fence + 1, attempts = attempts + 1, leased_by = ?3
WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
  ) LIMIT (SELECT iif(paused, 0, ?1) FROM "main"."chanq_queues" WHERE name = 'orders'))
RETURNING id, priority, fence, attempts, enqueued_at, due_at, dedup_key, headers, body;
