DO $chanq$
BEGIN
  IF to_regclass('"public"."chanq_orders"') IS NULL THEN
    CREATE TABLE "public"."chanq_orders" (
      id          uuid     NOT NULL,
      visible_at  bigint   NOT NULL,
      enqueued_at bigint   NOT NULL,
      fence       integer  NOT NULL,
      attempts    integer  NOT NULL,
      priority    smallint NOT NULL,
      dedup_key   text COLLATE "C",
      leased_by   text,
      last_error  text,
      headers     bytea,
      body        bytea    NOT NULL,
      CONSTRAINT "pk_chanq_orders" PRIMARY KEY (id)
    ) WITH (fillfactor = 50,
      autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off,
      toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000, toast.vacuum_truncate = off);
    ALTER TABLE "public"."chanq_orders" ALTER COLUMN body SET STORAGE EXTERNAL;
  END IF;
END
$chanq$;
