DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__dead_dedup"') IS NULL THEN
    CREATE INDEX "ix_chanq_orders__dead_dedup" ON "public"."chanq_orders__dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;
  END IF;
END
$chanq$;
