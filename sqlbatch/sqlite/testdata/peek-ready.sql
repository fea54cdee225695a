SELECT CASE WHEN visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'ready' WHEN leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state,
  id, priority, fence, attempts, enqueued_at, visible_at AS due_at, expires_at, leased_by, (SELECT m.name FROM "main"."chanq_members" AS m WHERE m.id = leased_by) AS holder,
  dedup_key, last_error, headers, body FROM "main"."chanq_orders" WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, leased_by IS NULL AS unleased, visible_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
  ) ORDER BY priority DESC, unleased, visible_at, id LIMIT ?1 + 0)
ORDER BY priority DESC, leased_by IS NULL, visible_at, id;
