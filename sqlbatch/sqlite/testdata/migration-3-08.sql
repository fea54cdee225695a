CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__dead_dedup" ON "chanq_orders__dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;
