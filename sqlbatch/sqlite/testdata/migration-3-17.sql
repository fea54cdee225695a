CREATE TABLE IF NOT EXISTS "main"."chanq__log" (
  id       TEXT NOT NULL PRIMARY KEY,
  queue    TEXT NOT NULL,
  at       bigint NOT NULL,
  actor    TEXT NOT NULL,
  what     TEXT NOT NULL,
  which    TEXT NOT NULL,
  reason   TEXT NOT NULL,
  ended_at bigint NULL,
  messages bigint NULL,
  error    TEXT NULL,
  UNIQUE (queue, id)
);
