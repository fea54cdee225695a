DELETE FROM "main"."chanq_orders" WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 2 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY visible_at, id LIMIT ?1)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY visible_at, id LIMIT ?1)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 0 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY visible_at, id LIMIT ?1)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = -1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY visible_at, id LIMIT ?1)
) LIMIT ?1) RETURNING id;
