CREATE TABLE IF NOT EXISTS "main"."chanq__queues" (
  name           TEXT    NOT NULL PRIMARY KEY,
  version        INTEGER NOT NULL,
  min_version    INTEGER NOT NULL DEFAULT 1,
  features       INTEGER NOT NULL DEFAULT 0,
  kind           INTEGER NOT NULL,
  slots          INTEGER NOT NULL,
  holds INTEGER NOT NULL, max_keys INTEGER NOT NULL, max_attempts INTEGER NOT NULL, max_body INTEGER NOT NULL, retain_ms INTEGER NOT NULL, retain_dead_ms INTEGER NOT NULL,
  paused         INTEGER NOT NULL DEFAULT 0,
  paused_at      INTEGER,
  paused_by      TEXT,
  pause_reason   TEXT,
  shard          INTEGER NOT NULL,
  shards         INTEGER NOT NULL,
  shard_set      TEXT    NOT NULL,
  redriven       INTEGER NOT NULL DEFAULT 0,
  created_at     INTEGER NOT NULL
);
