CREATE TABLE IF NOT EXISTS "public"."chanq_orders__dead" (
  id          uuid     NOT NULL,
  enqueued_at bigint   NOT NULL,
  ended_at    bigint   NOT NULL,
  fence       bigint   NOT NULL,
  attempts    integer  NOT NULL,
  priority    smallint NOT NULL,
  cause       smallint NOT NULL,
  fingerprint bigint,
  noticed_at  bigint DEFAULT 0,
  dedup_key   text COLLATE "C",
  type        text COLLATE "C",
  last_error  text,
  history     text,
  headers     bytea,
  body        bytea    NOT NULL,
  CONSTRAINT "pk_chanq_orders__dead" PRIMARY KEY (id)
);
