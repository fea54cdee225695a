CREATE TABLE IF NOT EXISTS "main"."chanq__slots" (
  queue  TEXT    NOT NULL,
  slot   INTEGER NOT NULL,
  consumer BLOB,
  fence  INTEGER NOT NULL DEFAULT 0,
  old    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, slot)
) WITHOUT ROWID;
