CREATE TABLE IF NOT EXISTS "public"."chanq__slots" (
  fence  bigint   NOT NULL DEFAULT 0,
  old    bigint   NOT NULL DEFAULT 0,
  consumer uuid,
  slot   smallint NOT NULL,
  queue  text COLLATE "C" NOT NULL,
  CONSTRAINT "pk_chanq__slots" PRIMARY KEY (queue, slot)
) WITH (fillfactor = 50);
