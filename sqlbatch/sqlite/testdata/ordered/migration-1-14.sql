CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_line" ON "chanq_orders_dead" (slot, order_key) WHERE order_key IS NOT NULL;
