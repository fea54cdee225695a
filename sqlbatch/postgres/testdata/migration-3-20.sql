CREATE TABLE IF NOT EXISTS "public"."chanq__log" (
  id       text COLLATE "C" NOT NULL PRIMARY KEY,
  queue    text COLLATE "C" NOT NULL,
  at       bigint NOT NULL,
  actor    text COLLATE "C" NOT NULL,
  what     text COLLATE "C" NOT NULL,
  which    text COLLATE "C" NOT NULL,
  reason   text COLLATE "C" NOT NULL,
  ended_at bigint NULL,
  messages bigint NULL,
  error    text COLLATE "C" NULL,
  UNIQUE (queue, id)
);
