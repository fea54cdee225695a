CREATE TABLE IF NOT EXISTS "public"."chanq__consumers" (
  id      uuid   NOT NULL,
  since   bigint NOT NULL,
  until   bigint NOT NULL,
  heard_at bigint,
  process bigint NOT NULL,
  queue   text COLLATE "C" NOT NULL,
  name    text   NOT NULL,
  host    text   NOT NULL,
  CONSTRAINT "pk_chanq__consumers" PRIMARY KEY (id)
) WITH (fillfactor = 50);
