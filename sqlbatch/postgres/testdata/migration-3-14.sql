DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__done_ended"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders__done_ended" ON "public"."chanq_orders__done" (ended_at, id);
  END IF;
END
$chanq$;
