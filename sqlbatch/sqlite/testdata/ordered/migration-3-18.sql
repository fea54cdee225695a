CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__dead_key" ON "chanq_orders__dead" (slot, order_key) WHERE order_key IS NOT NULL;
