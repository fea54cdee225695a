CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_done_ended" ON "chanq_orders_done" (ended_at, id);
