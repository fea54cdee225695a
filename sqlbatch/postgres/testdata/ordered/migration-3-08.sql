DO $chanq$
BEGIN
  IF to_regclass('"public"."ix_chanq_orders__seq"') IS NULL THEN
    BEGIN
      EXECUTE 'ALTER TABLE ' || '"public"."chanq_orders"' || ' ALTER COLUMN body SET COMPRESSION lz4';
    EXCEPTION WHEN syntax_error OR feature_not_supported THEN
      BEGIN
        ALTER TABLE "public"."chanq_orders" ALTER COLUMN body SET STORAGE EXTERNAL;
      EXCEPTION WHEN feature_not_supported THEN
        NULL;
      END;
    END;
    CREATE INDEX "ix_chanq_orders__seq" ON "public"."chanq_orders" (seq, slot);
  END IF;
END
$chanq$;
