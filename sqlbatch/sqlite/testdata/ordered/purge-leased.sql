DELETE FROM "main"."chanq_orders" WHERE seq IN (SELECT seq FROM "main"."chanq_orders" WHERE seq > ?2 AND seq <= ?4 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND (fence - 1) >> 20 < ?3 ORDER BY seq LIMIT ?1 + 0)
RETURNING id, seq;
