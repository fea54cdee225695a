DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_members"') IS NULL THEN
    CREATE INDEX "ix_chanq_members" ON "public"."chanq_members" (queue);
  END IF;
END
$chanq$;
