CREATE INDEX IF NOT EXISTS "ix_chanq_orders_done" ON "public"."chanq_orders_done" (ended_at, id);
