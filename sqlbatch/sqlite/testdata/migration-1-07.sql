CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_dedup" ON "chanq_orders_dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;
