CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_ended" ON "chanq_orders_dead" (ended_at, id);
