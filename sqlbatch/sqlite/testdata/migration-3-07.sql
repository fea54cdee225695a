CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders__dead_cause" ON "chanq_orders__dead" (cause, fingerprint, ended_at, id);
