CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__dead_new" ON "chanq_orders__dead" (ended_at, id) WHERE noticed_at = 0;
