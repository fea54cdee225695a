WITH c AS MATERIALIZED (
SELECT rowid AS r FROM "main"."chanq_orders__done" WHERE (ended_at, id) < (?2, ?3) ORDER BY ended_at DESC, id DESC LIMIT ?1 + 0
)
SELECT 'done' AS state,
  id, priority, fence, attempts, enqueued_at, NULL AS due_at, NULL AS lease_until, ended_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, 2000) AS history, NULL AS cause, NULL AS fingerprint, NULL AS headers, CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END AS body, slot, seq, order_key FROM "main"."chanq_orders__done" WHERE rowid IN (SELECT r FROM c) AND (rowid = (SELECT r FROM c LIMIT 1 OFFSET ?1 - 1)
  OR (?4 = '' OR type = ?4) AND (?6 = '' OR order_key = ?6))
ORDER BY ended_at DESC, id DESC LIMIT ?5;
