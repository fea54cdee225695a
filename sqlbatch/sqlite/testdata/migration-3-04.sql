CREATE UNIQUE INDEX IF NOT EXISTS "main"."ux_chanq_orders__dedup" ON "chanq_orders" (dedup_key) WHERE dedup_key IS NOT NULL;
