SELECT min(due) FROM (
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 2 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 2 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 1 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 1 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = 0 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = 0 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "lx_chanq_orders_leased" WHERE leased_by IS NOT NULL AND priority = -1 ORDER BY visible_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT visible_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_ready" WHERE leased_by IS NULL AND priority = -1 ORDER BY visible_at, id LIMIT 1)
) WHERE (SELECT NOT paused FROM "main"."chanq_queues" WHERE name = 'orders');
