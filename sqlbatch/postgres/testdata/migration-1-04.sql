CREATE INDEX IF NOT EXISTS "ix_chanq_orders" ON "public"."chanq_orders" (priority, due_at, uuid_send(id));
