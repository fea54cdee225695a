WITH parts AS MATERIALIZED (
  SELECT p.o, p.slot, p.seq, p.most FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 47 FROM n WHERE o + 47 < length(?1))
  SELECT o, CAST(substr(?1, o, 4) AS INTEGER) AS slot, CAST(substr(?1, o + 4, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 23, 19) AS INTEGER) AS seq, CAST(substr(?1, o + 42, 5) AS INTEGER) AS most
  FROM n WHERE length(?1) > 1) AS p
  CROSS JOIN "main"."chanq_slots" AS s ON s.queue = 'orders' AND s.slot = p.slot AND s.fence = p.fence AND s.member = ?3
  WHERE EXISTS (SELECT 1 FROM "main"."chanq_members" AS m WHERE m.id = ?3 AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) AND NOT (SELECT paused FROM "main"."chanq_queues" WHERE name = 'orders')
),
walked AS NOT MATERIALIZED (
  SELECT p.o, q.seq, q.due_at, q.lease_until, q.lapses, q.leased_by, false AS taken
  FROM parts AS p
  CROSS JOIN "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" ON p.most > 0 AND q.slot = p.slot AND q.seq > p.seq AND q.seq <= coalesce(CASE p.most
    WHEN ?6 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?6 - 1)
    WHEN ?7 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?7 - 1)
    WHEN ?8 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?8 - 1)
    WHEN ?9 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?9 - 1)
    WHEN ?10 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?10 - 1)
    WHEN ?11 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?11 - 1)
    WHEN ?12 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?12 - 1)
    WHEN ?13 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?13 - 1)
    END, 9223372036854775807)
  WHERE NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 0 AND NOT false AND NOT ?4)
  LIMIT ?2 + 0
)
UPDATE "main"."chanq_orders"
SET lease_until = min(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + ?14, (SELECT m.until FROM "main"."chanq_members" AS m WHERE m.id = ?3)),
  fence = (CASE WHEN fence > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20 AND fence <= 8999998900488372224 THEN (fence >> 20) + 1 ELSE CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) END << 20) + ?5,
  attempts = min(attempts + 1, 2000000000), lapses = min(lapses + (leased_by IS NOT NULL), 32767), leased_by = ?3
WHERE seq IN (SELECT w.seq FROM walked AS w WHERE w.due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND w.lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND w.lapses + (w.leased_by IS NOT NULL) < ?15);

WITH parts AS MATERIALIZED (
  SELECT p.o, p.slot, p.seq, p.most FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 47 FROM n WHERE o + 47 < length(?1))
  SELECT o, CAST(substr(?1, o, 4) AS INTEGER) AS slot, CAST(substr(?1, o + 4, 19) AS INTEGER) AS fence,
         CAST(substr(?1, o + 23, 19) AS INTEGER) AS seq, CAST(substr(?1, o + 42, 5) AS INTEGER) AS most
  FROM n WHERE length(?1) > 1) AS p
  CROSS JOIN "main"."chanq_slots" AS s ON s.queue = 'orders' AND s.slot = p.slot AND s.fence = p.fence AND s.member = ?3
  WHERE EXISTS (SELECT 1 FROM "main"."chanq_members" AS m WHERE m.id = ?3 AND m.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) AND NOT (SELECT paused FROM "main"."chanq_queues" WHERE name = 'orders')
),
walked AS MATERIALIZED (
  SELECT p.o, q.seq, q.due_at, q.lease_until, q.lapses, q.leased_by, (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AS taken
  FROM parts AS p
  CROSS JOIN "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" ON p.most > 0 AND q.slot = p.slot AND q.seq > p.seq AND q.seq <= coalesce(CASE p.most
    WHEN ?6 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?6 - 1)
    WHEN ?7 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?7 - 1)
    WHEN ?8 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?8 - 1)
    WHEN ?9 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?9 - 1)
    WHEN ?10 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?10 - 1)
    WHEN ?11 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?11 - 1)
    WHEN ?12 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?12 - 1)
    WHEN ?13 THEN (SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = p.slot AND q.seq > p.seq AND NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4) ORDER BY q.seq LIMIT 1 OFFSET ?13 - 1)
    END, 9223372036854775807)
  WHERE NOT (q.leased_by IS ?3 AND q.lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 1000 AND NOT (q.leased_by IS ?3 AND (q.fence - ?5) & 1048575 = 0) AND NOT ?4)
  LIMIT ?2 + 0
)
SELECT q.id, q.priority, q.fence, q.attempts, q.lapses, coalesce(q.expires_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0), q.enqueued_at, q.due_at, q.expires_at,
  dedup_key, headers, body, q.slot, q.seq, q.order_key, NULL AS wait
FROM walked AS w CROSS JOIN "main"."chanq_orders" AS q ON q.seq = w.seq
WHERE w.taken
UNION ALL
SELECT q.id, 0, 0, 0, 0, 0, 0, q.due_at, NULL, NULL, NULL, NULL, q.slot, q.seq, q.order_key, max(q.due_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), q.lease_until - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0)
FROM walked AS w CROSS JOIN "main"."chanq_orders" AS q ON q.seq = w.seq
WHERE NOT w.taken
UNION ALL
SELECT NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, p.slot,
  CASE WHEN p.o > a.o THEN p.seq WHEN coalesce(e.n, 0) >= p.most OR p.o = a.o THEN coalesce(e.seq, p.seq) ELSE 9223372036854775807 END, NULL, NULL
FROM parts AS p
LEFT JOIN (SELECT o, count(*) AS n, max(seq) AS seq FROM walked GROUP BY o) AS e ON e.o = p.o
CROSS JOIN (SELECT CASE WHEN count(*) >= ?2 THEN coalesce(max(o), 0) END AS o FROM walked) AS a;
