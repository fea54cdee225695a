UPDATE "main"."chanq_orders" SET lease_until = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + ?3, fence = CASE WHEN fence > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20 AND fence <= 8999998900488372224 THEN fence ELSE CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) << 20 END + ?5,
  attempts = iif(?7 AND leased_by IS ?4, attempts, min(attempts + 1, 2000000000)),
  lapses = iif(leased_by IS NULL OR ?7 AND leased_by IS ?4, lapses, min(lapses + 1, 32767)),
  crashes = iif(leased_by IS NULL OR alone = 0 OR ?7 AND leased_by IS ?4, crashes, min(crashes + 1, 32767)),
  leased_by = ?4, alone = ?6
WHERE id = ?1 AND fence = ?2 AND due_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AND (lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) OR ?7 AND leased_by IS ?4)
  AND coalesce((SELECT NOT paused FROM "main"."chanq__queues" WHERE name = 'orders'), 0)
RETURNING id, priority, fence, attempts, lapses, coalesce(expires_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 0), enqueued_at, due_at, expires_at, NULL, NULL, NULL, NULL, CASE WHEN body >= x'' THEN length(body) ELSE length(CAST(body AS BLOB)) END;
