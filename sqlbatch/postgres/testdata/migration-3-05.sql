DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__due"') IS NULL THEN
    BEGIN
      EXECUTE 'ALTER TABLE ' || '"public"."chanq_orders"' || ' ALTER COLUMN body SET COMPRESSION lz4';
    EXCEPTION WHEN syntax_error OR feature_not_supported THEN
      BEGIN
        ALTER TABLE "public"."chanq_orders" ALTER COLUMN body SET STORAGE EXTERNAL;
      EXCEPTION WHEN feature_not_supported THEN
        NULL;
      END;
    END;
    CREATE INDEX "ix_chanq_orders__due" ON "public"."chanq_orders" (priority, due_at, uuid_send(id));
  END IF;
END
$chanq$;
