CREATE TABLE IF NOT EXISTS "main"."chanq__queues" (
  name       TEXT    NOT NULL PRIMARY KEY,
  version    INTEGER NOT NULL,
  paused     INTEGER NOT NULL DEFAULT 0,
  slots      INTEGER NOT NULL DEFAULT 0,
  holds      INTEGER NOT NULL DEFAULT 0,
  shard      INTEGER NOT NULL DEFAULT 0,
  shards     INTEGER NOT NULL DEFAULT 0,
  shard_set  TEXT    NOT NULL DEFAULT '',
  redriven   INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
);
