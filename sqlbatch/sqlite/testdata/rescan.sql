WITH first AS MATERIALIZED (
  SELECT 2 AS priority, r.due_at AS due, r.id AS id, r.lapses AS lapses, e.due_at AS lost_at, e.id AS lost_id,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, lapses FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY due_at, id LIMIT 1) AS r
  LEFT JOIN (SELECT due_at, id FROM (SELECT due_at, id, leased_by FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 100 + 1) WHERE leased_by IS NOT NULL ORDER BY due_at, id LIMIT 1) AS e
    UNION ALL
  SELECT 1 AS priority, r.due_at AS due, r.id AS id, r.lapses AS lapses, e.due_at AS lost_at, e.id AS lost_id,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, lapses FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY due_at, id LIMIT 1) AS r
  LEFT JOIN (SELECT due_at, id FROM (SELECT due_at, id, leased_by FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 100 + 1) WHERE leased_by IS NOT NULL ORDER BY due_at, id LIMIT 1) AS e
    UNION ALL
  SELECT 0 AS priority, r.due_at AS due, r.id AS id, r.lapses AS lapses, e.due_at AS lost_at, e.id AS lost_id,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, lapses FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY due_at, id LIMIT 1) AS r
  LEFT JOIN (SELECT due_at, id FROM (SELECT due_at, id, leased_by FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 100 + 1) WHERE leased_by IS NOT NULL ORDER BY due_at, id LIMIT 1) AS e
    UNION ALL
  SELECT -1 AS priority, r.due_at AS due, r.id AS id, r.lapses AS lapses, e.due_at AS lost_at, e.id AS lost_id,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, lapses FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND leased_by IS NULL ORDER BY due_at, id LIMIT 1) AS r
  LEFT JOIN (SELECT due_at, id FROM (SELECT due_at, id, leased_by FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 100 + 1) WHERE leased_by IS NOT NULL ORDER BY due_at, id LIMIT 1) AS e
),
seen AS MATERIALIZED (
  SELECT f.*, CASE WHEN due IS NULL THEN (SELECT min(lease_until) FROM (
    SELECT q.lease_until FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders__due" WHERE q.priority = f.priority AND q.due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY q.due_at, q.id LIMIT 100000)) END AS ends
  FROM first AS f
)
SELECT priority, coalesce(due, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)), coalesce(due, min(scheduled, ends), scheduled, ends) - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER),
  (SELECT count(*) FROM "main"."chanq__consumers" AS m WHERE m.queue = 'orders' AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)), id, lapses, lost_at, lost_id
FROM seen WHERE (SELECT NOT paused FROM "main"."chanq__queues" WHERE name = 'orders');
