SELECT 'dead' AS state,
  id, priority, fence, attempts, enqueued_at, NULL AS due_at, NULL AS lease_until, ended_at, NULL AS expires_at, NULL AS leased_by, NULL AS holder,
  dedup_key, type, substr(last_error, 1, 2000) AS last_error, substr(history, 1, 2000) AS history, cause, fingerprint, headers, body, slot, seq, order_key FROM "main"."chanq_orders__dead" WHERE (ended_at, id) < (?2, ?3) ORDER BY ended_at DESC, id DESC LIMIT ?1;
