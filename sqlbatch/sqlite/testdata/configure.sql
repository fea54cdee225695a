UPDATE "main"."chanq__queues" SET holds = ?1, max_keys = ?2, max_attempts = ?3, max_body = ?4, retain_ms = ?5, retain_dead_ms = ?6
WHERE name = 'orders';
