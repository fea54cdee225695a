WITH first AS MATERIALIZED (SELECT due_at, lease_until FROM "main"."chanq_orders" ORDER BY seq LIMIT ?1 * 2)
SELECT
  (SELECT min(count(*), ?1) FROM first WHERE due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  (SELECT min(count(*), ?1) FROM first WHERE due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  (SELECT min(count(*), ?1) FROM first WHERE lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders__dead" LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders__done" LIMIT ?1)),
  (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - min(due_at) FROM first WHERE due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  (SELECT paused FROM "main"."chanq__queues" WHERE name = 'orders');
