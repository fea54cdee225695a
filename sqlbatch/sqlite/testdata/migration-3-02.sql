CREATE TABLE IF NOT EXISTS "main"."chanq__consumers" (
  id      BLOB    NOT NULL PRIMARY KEY,
  queue   TEXT    NOT NULL,
  name    TEXT    NOT NULL,
  host    TEXT    NOT NULL,
  process INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  until   INTEGER NOT NULL,
  heard_at INTEGER
);
