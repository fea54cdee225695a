CREATE INDEX IF NOT EXISTS "ix_chanq_orders" ON "public"."chanq_orders" (priority, visible_at, uuid_send(id)) WHERE leased_by IS NULL;
