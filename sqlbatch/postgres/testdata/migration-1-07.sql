CREATE INDEX IF NOT EXISTS "ix_chanq_orders_dead" ON "public"."chanq_orders_dead" (ended_at, id);
