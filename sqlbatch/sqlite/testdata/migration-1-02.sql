CREATE TABLE IF NOT EXISTS "main"."chanq_members" (
  id      BLOB    NOT NULL PRIMARY KEY,
  queue   TEXT    NOT NULL,
  name    TEXT    NOT NULL,
  host    TEXT    NOT NULL,
  process INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  until   INTEGER NOT NULL
);
