CREATE TABLE IF NOT EXISTS "public"."chanq__queues" (
  name           text COLLATE "C" NOT NULL,
  version        integer  NOT NULL,
  min_version    integer  NOT NULL DEFAULT 1,
  features       bigint   NOT NULL DEFAULT 0,
  kind           smallint NOT NULL,
  slots          smallint NOT NULL,
  holds smallint NOT NULL, max_keys integer NOT NULL, max_attempts integer NOT NULL, max_body integer NOT NULL, retain_ms bigint NOT NULL, retain_dead_ms bigint NOT NULL,
  paused         boolean  NOT NULL DEFAULT false,
  paused_at      bigint,
  paused_by      text,
  pause_reason   text,
  shard          smallint NOT NULL,
  shards         smallint NOT NULL,
  shard_set      text COLLATE "C" NOT NULL,
  redriven       bigint   NOT NULL DEFAULT 0,
  created_at     bigint   NOT NULL,
  CONSTRAINT "pk_chanq__queues" PRIMARY KEY (name)
);
