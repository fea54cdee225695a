CREATE INDEX IF NOT EXISTS "main"."lx_chanq_orders_leased" ON "chanq_orders" (priority, visible_at, id) WHERE leased_by IS NOT NULL;
