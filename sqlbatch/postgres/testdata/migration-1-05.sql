CREATE UNIQUE INDEX IF NOT EXISTS "ux_chanq_orders" ON "public"."chanq_orders" (dedup_key) WHERE dedup_key IS NOT NULL;
