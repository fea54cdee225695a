CREATE TABLE IF NOT EXISTS "public"."chanq__samples" (
  at        bigint  NOT NULL,
  sent      bigint  NOT NULL,
  acked     bigint  NOT NULL,
  nacked    bigint  NOT NULL,
  died      bigint  NOT NULL,
  delivered bigint  NOT NULL,
  waited    bigint  NOT NULL,
  step      integer NOT NULL,
  ready     integer,
  scheduled integer,
  leased    integer,
  dead      integer,
  oldest    bigint,
  queue     text COLLATE "C" NOT NULL,
  CONSTRAINT "pk_chanq__samples" PRIMARY KEY (queue, step, at)
) WITH (fillfactor = 70);
