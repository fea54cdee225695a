SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    LIMIT ?1 + 0)),
  (SELECT count(*) FROM (
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 2 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 0 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = -1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    LIMIT ?1 + 0)),
  (SELECT count(*) FROM (
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 2 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 0 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = -1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    LIMIT ?1 + 0)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders_dead" LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders_done" LIMIT ?1)),
  (SELECT -min(due) FROM (
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT 1))),
  (SELECT paused FROM "main"."chanq_queues" WHERE name = 'orders');
