WITH first AS MATERIALIZED (
  SELECT 2 AS priority, e.*, iif(e.suspect, (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lapses + (leased_by IS NOT NULL) < 2 ORDER BY due_at, id LIMIT 1), e.due_at) AS ready,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 2 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, fence, alone, crashes + (leased_by IS NOT NULL AND alone > 0) AS crashes, NOT (lapses + (leased_by IS NOT NULL) < 2) AS suspect
    FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS e
    UNION ALL
  SELECT 1 AS priority, e.*, iif(e.suspect, (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lapses + (leased_by IS NOT NULL) < 2 ORDER BY due_at, id LIMIT 1), e.due_at) AS ready,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, fence, alone, crashes + (leased_by IS NOT NULL AND alone > 0) AS crashes, NOT (lapses + (leased_by IS NOT NULL) < 2) AS suspect
    FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS e
    UNION ALL
  SELECT 0 AS priority, e.*, iif(e.suspect, (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lapses + (leased_by IS NOT NULL) < 2 ORDER BY due_at, id LIMIT 1), e.due_at) AS ready,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 0 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, fence, alone, crashes + (leased_by IS NOT NULL AND alone > 0) AS crashes, NOT (lapses + (leased_by IS NOT NULL) < 2) AS suspect
    FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS e
    UNION ALL
  SELECT -1 AS priority, e.*, iif(e.suspect, (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lapses + (leased_by IS NOT NULL) < 2 ORDER BY due_at, id LIMIT 1), e.due_at) AS ready,
    (SELECT due_at FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = -1 AND due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS scheduled
  FROM (SELECT 1) LEFT JOIN (SELECT due_at, id, fence, alone, crashes + (leased_by IS NOT NULL AND alone > 0) AS crashes, NOT (lapses + (leased_by IS NOT NULL) < 2) AS suspect
    FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders_due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1) AS e
),
seen AS MATERIALIZED (
  SELECT f.*, CASE WHEN ready IS NULL THEN (SELECT min(lease_until) FROM (
    SELECT q.lease_until FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.priority = f.priority AND q.due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY q.due_at, q.id LIMIT 100000)) END AS ends
  FROM first AS f
)
SELECT priority, coalesce(ready, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)), coalesce(ready, min(scheduled, ends), scheduled, ends) - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER),
  (SELECT count(*) FROM "main"."chanq_members" AS m WHERE m.queue = 'orders' AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  iif(suspect, id, NULL), iif(suspect, fence, NULL), iif(suspect, crashes, NULL), iif(suspect, alone, NULL)
FROM seen WHERE (SELECT NOT paused FROM "main"."chanq_queues" WHERE name = 'orders');
