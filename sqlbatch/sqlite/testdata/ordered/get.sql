SELECT CASE WHEN lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'leased' WHEN due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'ready' ELSE 'scheduled' END AS state,
  id, priority, fence, attempts, enqueued_at, due_at, iif(leased_by IS NULL, NULL, lease_until) AS lease_until, NULL AS ended_at, expires_at, leased_by,
  (SELECT m.name FROM "main"."chanq__consumers" AS m WHERE m.id = leased_by) AS holder, dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, 2000) AS history, NULL AS cause, NULL AS fingerprint, headers, body, slot, seq, order_key FROM "main"."chanq_orders" WHERE id = ?1
UNION ALL SELECT 'dead' AS state,
  id, priority, fence, attempts, enqueued_at, NULL AS due_at, NULL AS lease_until, ended_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, 2000) AS history, cause, fingerprint, headers, body, slot, seq, order_key FROM "main"."chanq_orders__dead" WHERE id = ?1
UNION ALL SELECT 'done' AS state,
  id, priority, fence, attempts, enqueued_at, NULL AS due_at, NULL AS lease_until, ended_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, 2000) AS history, NULL AS cause, NULL AS fingerprint, headers, body, slot, seq, order_key FROM "main"."chanq_orders__done" WHERE id = ?1;
