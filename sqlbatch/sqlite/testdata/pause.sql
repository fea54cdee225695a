UPDATE "main"."chanq__queues" SET paused = 1, paused_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), paused_by = ?1, pause_reason = ?2 WHERE name = 'orders';
