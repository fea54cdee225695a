CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__dead_ended" ON "chanq_orders__dead" (ended_at, id);
