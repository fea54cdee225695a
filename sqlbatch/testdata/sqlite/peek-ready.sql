SELECT CASE WHEN visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'ready' WHEN leased_by IS NULL THEN 'scheduled' ELSE 'leased' END AS state, id, priority, fence, attempts, enqueued_at, visible_at AS due_at, leased_by, dedup_key, last_error, headers, body FROM "main"."chanq_orders" WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" WHERE priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1 + 0)
) LIMIT ?1) ORDER BY priority DESC, visible_at, id;
