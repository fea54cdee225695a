DELETE FROM "main"."chanq_orders" WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
) LIMIT ?1) RETURNING id;
