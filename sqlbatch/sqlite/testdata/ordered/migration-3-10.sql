CREATE TABLE IF NOT EXISTS "main"."chanq_orders__done" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  outcome     INTEGER NOT NULL,
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
  history     TEXT,
  headers     BLOB,
  body        BLOB    NOT NULL
);
