WITH c AS MATERIALIZED (
SELECT rowid AS r FROM (
    SELECT * FROM (SELECT rowid, priority, due_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND (due_at, id) > (CASE WHEN 0 = ?2 THEN ?3 WHEN 0 > ?2 THEN -1 ELSE 9223372036854775807 END, ?4) ORDER BY due_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, due_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND (due_at, id) > (CASE WHEN 1 = ?2 THEN ?3 WHEN 1 > ?2 THEN -1 ELSE 9223372036854775807 END, ?4) ORDER BY due_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, due_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND (due_at, id) > (CASE WHEN 2 = ?2 THEN ?3 WHEN 2 > ?2 THEN -1 ELSE 9223372036854775807 END, ?4) ORDER BY due_at, id LIMIT ?1 + 0)
    UNION ALL
    SELECT * FROM (SELECT rowid, priority, due_at, id FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND (due_at, id) > (CASE WHEN 3 = ?2 THEN ?3 WHEN 3 > ?2 THEN -1 ELSE 9223372036854775807 END, ?4) ORDER BY due_at, id LIMIT ?1 + 0)
  ) ORDER BY priority DESC, due_at, id LIMIT ?1 + 0
)
SELECT CASE WHEN lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'leased' WHEN due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'ready' ELSE 'scheduled' END AS state,
  id, priority, fence, attempts, enqueued_at, due_at, iif(leased_by IS NULL, NULL, lease_until) AS lease_until, NULL AS ended_at, expires_at, leased_by,
  (SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = leased_by) AS holder, dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, 2000) AS history, NULL AS cause, NULL AS fingerprint, NULL AS headers, CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END AS body FROM "main"."chanq_orders" WHERE rowid IN (SELECT r FROM c) AND (rowid = (SELECT r FROM c LIMIT 1 OFFSET ?1 - 1)
  OR (?5 = '' OR type = ?5))
ORDER BY priority DESC, due_at, id LIMIT ?6;
