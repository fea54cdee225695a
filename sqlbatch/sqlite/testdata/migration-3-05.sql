CREATE TABLE IF NOT EXISTS "main"."chanq_orders__dead" (
  id          BLOB    NOT NULL PRIMARY KEY,
  priority    INTEGER NOT NULL,
  cause       INTEGER NOT NULL,
  fingerprint INTEGER,
  noticed_at  INTEGER DEFAULT 0,
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
