CREATE TABLE IF NOT EXISTS "public"."chanq__queues" (
  name       text COLLATE "C" NOT NULL,
  version    integer NOT NULL,
  paused     boolean NOT NULL DEFAULT false,
  slots      smallint NOT NULL DEFAULT 0,
  holds      smallint NOT NULL DEFAULT 0,
  shard      smallint NOT NULL DEFAULT 0,
  shards     smallint NOT NULL DEFAULT 0,
  shard_set  text COLLATE "C" NOT NULL DEFAULT '',
  redriven   bigint  NOT NULL DEFAULT 0,
  created_at bigint  NOT NULL,
  CONSTRAINT "pk_chanq__queues" PRIMARY KEY (name)
);
