UPDATE "main"."chanq_orders" SET dedup_key = NULL WHERE rowid IN (SELECT q.rowid FROM (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 91 FROM n WHERE o + 91 < length(?1))
  SELECT substr(?1, o, 16) AS id, CAST(substr(?2, CAST(substr(?1, o + 43, 9) AS INTEGER), CAST(substr(?1, o + 52, 3) AS INTEGER)) AS TEXT) AS dedup_key
  FROM n) AS r CROSS JOIN "main"."chanq_orders" AS q ON q.dedup_key = r.dedup_key AND q.dedup_key IS NOT NULL
WHERE q.leased_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "main"."chanq_orders" AS e WHERE e.id = r.id));

INSERT INTO "main"."chanq_orders" (id, priority, due_at, enqueued_at, expires_at, dedup_key, type, headers, body)
SELECT id, priority, t.now + delay, t.now, t.now + ttl, dedup_key, type, headers, body
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now) AS t CROSS JOIN (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 91 FROM n WHERE o + 91 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         iif(?3, CAST(substr(?1, o + 16, 1) AS INTEGER) - 1, 0) AS priority,
         iif(?3, CAST(substr(?1, o + 17, 13) AS INTEGER), 0) AS delay,
         iif(?3, CAST(nullif(substr(?1, o + 30, 13), x'30303030303030303030303030') AS INTEGER), NULL) AS ttl,
         CASE WHEN ?3 AND substr(?1, o + 52, 3) > x'303030' THEN CAST(substr(?2, CAST(substr(?1, o + 43, 9) AS INTEGER), CAST(substr(?1, o + 52, 3) AS INTEGER)) AS TEXT) END AS dedup_key,
         CASE WHEN ?3 AND substr(?1, o + 88, 3) > x'303030' THEN CAST(substr(?2, CAST(substr(?1, o + 55, 9) AS INTEGER) - CAST(substr(?1, o + 88, 3) AS INTEGER), CAST(substr(?1, o + 88, 3) AS INTEGER)) AS TEXT) END AS type,
         CASE WHEN ?3 AND substr(?1, o + 64, 6) > x'303030303030' THEN substr(?2, CAST(substr(?1, o + 55, 9) AS INTEGER), CAST(substr(?1, o + 64, 6) AS INTEGER)) END AS headers,
         substr(?2, CAST(substr(?1, o + 70, 9) AS INTEGER), CAST(substr(?1, o + 79, 9) AS INTEGER)) AS body
  FROM n) AS r
WHERE true
ON CONFLICT (id) DO NOTHING
ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO UPDATE SET fence = fence + 1, attempts = 0, lapses = 0, last_error = NULL, history = NULL, priority = excluded.priority,
  due_at = CASE WHEN enqueued_at + ?4 > excluded.enqueued_at THEN min(excluded.due_at, enqueued_at + ?4)
                WHEN due_at > excluded.enqueued_at AND ?4 IS NOT NULL THEN excluded.enqueued_at
                WHEN due_at < excluded.enqueued_at AND priority <> excluded.priority THEN excluded.enqueued_at
                ELSE due_at END,
  expires_at = CASE WHEN ?4 IS NULL THEN max(excluded.expires_at, due_at + excluded.expires_at - excluded.enqueued_at) ELSE excluded.expires_at END,
  type = excluded.type, headers = excluded.headers, body = excluded.body
RETURNING id, dedup_key;
