CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__due" ON "chanq_orders" (priority, due_at, id);
