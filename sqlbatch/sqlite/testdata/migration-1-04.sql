CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_ready" ON "chanq_orders" (priority, visible_at, id) WHERE leased_by IS NULL;
