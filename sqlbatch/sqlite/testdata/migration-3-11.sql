CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__done_ended" ON "chanq_orders__done" (ended_at, id);
