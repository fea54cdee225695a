DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__dead_new"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders__dead_new" ON "public"."chanq_orders__dead" (ended_at, id) WHERE noticed_at = 0;
  END IF;
END
$chanq$;
