DELETE FROM "main"."chanq_orders__dead" WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders__dead" WHERE ended_at >= ?3 AND ended_at < CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - ?1 ORDER BY ended_at, id LIMIT ?2 + 0)
RETURNING id, ended_at;
