INSERT INTO "main"."chanq_orders" (id, priority, visible_at, enqueued_at, due_at, expires_at, dedup_key, headers, body)
SELECT id, priority, t.now + delay, t.now, t.now + delay, t.now + nullif(ttl, 0), dedup_key, headers, body
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now) AS t CROSS JOIN (
  WITH RECURSIVE n(o) AS (SELECT 1 UNION ALL SELECT o + 88 FROM n WHERE o + 88 < length(?1))
  SELECT substr(?1, o, 16) AS id,
         CAST(substr(?1, o + 16, 1) AS INTEGER) - 1 AS priority,
         CAST(substr(?1, o + 17, 13) AS INTEGER) AS delay,
         CAST(substr(?1, o + 30, 13) AS INTEGER) AS ttl,
         nullif(CAST(substr(?2, CAST(substr(?1, o + 43, 9) AS INTEGER), CAST(substr(?1, o + 52, 3) AS INTEGER)) AS TEXT), '') AS dedup_key,
         nullif(substr(?2, CAST(substr(?1, o + 55, 9) AS INTEGER), CAST(substr(?1, o + 64, 6) AS INTEGER)), x'') AS headers,
         substr(?2, CAST(substr(?1, o + 70, 9) AS INTEGER), CAST(substr(?1, o + 79, 9) AS INTEGER)) AS body
  FROM n) AS r;
