CREATE TABLE IF NOT EXISTS "public"."chanq_orders" (
  id          uuid     NOT NULL DEFAULT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid,
  due_at      bigint   NOT NULL DEFAULT (extract(epoch FROM statement_timestamp()) * 1000)::bigint,
  lease_until bigint   NOT NULL DEFAULT 0,
  enqueued_at bigint   NOT NULL DEFAULT (extract(epoch FROM statement_timestamp()) * 1000)::bigint,
  fence       bigint   NOT NULL DEFAULT 0,
  attempts    integer  NOT NULL DEFAULT 0,
  priority    smallint NOT NULL DEFAULT 0,
  lapses      smallint NOT NULL DEFAULT 0,
  leased_by   uuid,
  expires_at  bigint,
  dedup_key   text COLLATE "C",
  type        text COLLATE "C",
  last_error  text,
  history     text,
  headers     bytea,
  body        bytea    NOT NULL,
  CONSTRAINT "pk_chanq_orders" PRIMARY KEY (id),
  CONSTRAINT "ck_chanq_orders__priority" CHECK (priority BETWEEN -1 AND 2),
  CONSTRAINT "ck_chanq_orders__values" CHECK (due_at BETWEEN 0 AND 253402300799999 AND lease_until BETWEEN 0 AND 253402300799999 AND enqueued_at BETWEEN 0 AND 253402300799999
    AND expires_at BETWEEN 0 AND 253402300799999 AND lapses >= 0
    AND attempts BETWEEN lapses + CASE WHEN leased_by IS NULL THEN 0 ELSE 1 END AND 2000000000 AND fence BETWEEN 0 AND 9000000000000000000),
  CONSTRAINT "ck_chanq_orders__sizes" CHECK (octet_length(body) <= 33554432 AND octet_length(headers) <= 65536 AND octet_length(dedup_key) BETWEEN 1 AND 200
    AND octet_length(type) BETWEEN 1 AND 100 AND type !~ '[^ -~]')
) WITH (fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off,
  toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000, toast.vacuum_truncate = off);
