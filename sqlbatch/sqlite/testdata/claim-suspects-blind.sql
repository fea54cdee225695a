UPDATE "main"."chanq_orders" SET due_at = visible_at, visible_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + ?2, fence = CASE WHEN fence > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20 THEN fence ELSE CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20 END + ?4,
  attempts = attempts + 1, lapses = lapses + (leased_by IS NOT NULL), leased_by = ?3
WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
  ) LIMIT coalesce((SELECT iif(paused, 0, ?1) FROM "main"."chanq_queues" WHERE name = 'orders'), 0))
RETURNING id, priority, fence, attempts, lapses, coalesce(expires_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0), enqueued_at, due_at, expires_at, NULL, NULL, NULL;
