SELECT
  min(?1, (SELECT sum(c) FROM (
    SELECT count(*) AS c FROM (SELECT 1 FROM "main"."chanq_orders" WHERE priority = 2 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1)
    UNION ALL SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders" WHERE priority = 1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1)
    UNION ALL SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders" WHERE priority = 0 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1)
    UNION ALL SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders" WHERE priority = -1 AND visible_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) LIMIT ?1)))),
  min(?1, coalesce(sum(leased = 0), 0)),
  min(?1, coalesce(sum(leased), 0)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders_dead" LIMIT ?1)),
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders_done" LIMIT ?1)),
  (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - min(due) FROM (
    SELECT * FROM (SELECT visible_at AS due FROM "main"."chanq_orders" WHERE priority = 2 ORDER BY visible_at, id LIMIT 1)
    UNION ALL SELECT * FROM (SELECT visible_at FROM "main"."chanq_orders" WHERE priority = 1 ORDER BY visible_at, id LIMIT 1)
    UNION ALL SELECT * FROM (SELECT visible_at FROM "main"."chanq_orders" WHERE priority = 0 ORDER BY visible_at, id LIMIT 1)
    UNION ALL SELECT * FROM (SELECT visible_at FROM "main"."chanq_orders" WHERE priority = -1 ORDER BY visible_at, id LIMIT 1))
   WHERE due <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  (SELECT paused FROM "main"."chanq_queues" WHERE name = 'orders')
FROM (
  SELECT * FROM (SELECT leased_by IS NOT NULL AS leased FROM "main"."chanq_orders" WHERE priority = 2 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT leased_by IS NOT NULL FROM "main"."chanq_orders" WHERE priority = 1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT leased_by IS NOT NULL FROM "main"."chanq_orders" WHERE priority = 0 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT leased_by IS NOT NULL FROM "main"."chanq_orders" WHERE priority = -1 AND visible_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY visible_at, id LIMIT ?1));
