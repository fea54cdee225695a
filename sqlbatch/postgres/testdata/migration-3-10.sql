DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__dead_cause"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders__dead_cause" ON "public"."chanq_orders__dead" (cause, fingerprint, ended_at, id);
  END IF;
END
$chanq$;
