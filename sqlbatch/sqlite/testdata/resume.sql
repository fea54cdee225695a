UPDATE "main"."chanq__queues" SET paused = 0, paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE name = 'orders';
