CREATE INDEX IF NOT EXISTS "kx_chanq_orders_dead" ON "public"."chanq_orders_dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;
