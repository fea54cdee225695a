CREATE TABLE IF NOT EXISTS "main"."chanq_orders__dead" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  cause       INTEGER NOT NULL,
  fingerprint INTEGER,
  noticed_at  INTEGER DEFAULT 0,
  slot        INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  order_key   TEXT,
  enqueued_at INTEGER NOT NULL,
  ended_at    INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  dedup_key   TEXT,
  type        TEXT,
  last_error  TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);
