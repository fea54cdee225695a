CREATE UNIQUE INDEX IF NOT EXISTS "main"."ux_chanq_orders_dedup" ON "chanq_orders" (dedup_key) WHERE dedup_key IS NOT NULL;
