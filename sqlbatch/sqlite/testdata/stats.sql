WITH ready AS MATERIALIZED (
    SELECT * FROM (SELECT due_at FROM (SELECT due_at, lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 10) WHERE lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT due_at FROM (SELECT due_at, lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 10) WHERE lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT due_at FROM (SELECT due_at, lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 10) WHERE lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT due_at FROM (SELECT due_at, lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 10) WHERE lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1 + 0)
)
SELECT
  (SELECT min(count(*), ?1) FROM ready),
  (SELECT count(*) FROM (
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    UNION ALL
    SELECT 1 FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    LIMIT ?1 + 0)),
  (SELECT min(count(*), ?1) FROM (
    SELECT * FROM (SELECT lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 2)
    UNION ALL
    SELECT * FROM (SELECT lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 2)
    UNION ALL
    SELECT * FROM (SELECT lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 2)
    UNION ALL
    SELECT * FROM (SELECT lease_until FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT ?1 * 2)
    ) WHERE lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders__dead" LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders__done" LIMIT ?1)),
  (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - min(due_at) FROM ready),
  (SELECT paused FROM "main"."chanq__queues" WHERE name = 'orders');
