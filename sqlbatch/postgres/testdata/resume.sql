UPDATE "public"."chanq__queues" SET paused = false, paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE name = 'orders';
