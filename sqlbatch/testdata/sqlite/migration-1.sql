CREATE TABLE IF NOT EXISTS "main"."chanq_queues" (
  name       TEXT    NOT NULL PRIMARY KEY,
  version    INTEGER NOT NULL,
  paused     INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS "main"."chanq_orders" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  visible_at  INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  due_at      INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  leased_by   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_ready" ON "chanq_orders" (priority, visible_at, id);

CREATE UNIQUE INDEX IF NOT EXISTS "main"."ux_chanq_orders_dedup" ON "chanq_orders" (dedup_key) WHERE dedup_key IS NOT NULL;

CREATE TABLE IF NOT EXISTS "main"."chanq_orders_dead" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_ended" ON "chanq_orders_dead" (ended_at, id);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_dead_dedup" ON "chanq_orders_dead" (dedup_key, id) WHERE dedup_key IS NOT NULL;

CREATE TABLE IF NOT EXISTS "main"."chanq_orders_done" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);

CREATE INDEX IF NOT EXISTS "main"."ix_chanq_orders_done_ended" ON "chanq_orders_done" (ended_at, id);

INSERT INTO "main"."chanq_queues" (name, version, created_at) VALUES ('orders', 1, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) ON CONFLICT (name) DO NOTHING;
