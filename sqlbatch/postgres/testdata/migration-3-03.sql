DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq__consumers"') IS NULL THEN
    CREATE INDEX "ix_chanq__consumers" ON "public"."chanq__consumers" (queue);
  END IF;
END
$chanq$;
