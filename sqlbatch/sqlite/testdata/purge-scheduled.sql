DELETE FROM "main"."chanq_orders" WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due"
  WHERE priority = ?5 + 0 AND (due_at, id) > (max(?2, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)), ?3) AND +due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND enqueued_at < ?4 ORDER BY due_at, id LIMIT ?1 + 0)
RETURNING id, due_at;
