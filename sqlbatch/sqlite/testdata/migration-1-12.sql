CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_due" ON "chanq_orders" (priority, due_at, id);
