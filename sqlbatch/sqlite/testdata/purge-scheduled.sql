DELETE FROM "main"."chanq_orders" WHERE rowid IN (SELECT rowid FROM (
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 2 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND enqueued_at < ?2 ORDER BY due_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND enqueued_at < ?2 ORDER BY due_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 0 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND enqueued_at < ?2 ORDER BY due_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = -1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND enqueued_at < ?2 ORDER BY due_at, id LIMIT ?1 + 0)
  ) LIMIT ?1 + 0)
RETURNING id, 0;
