CREATE TABLE IF NOT EXISTS "public"."chanq__samples" (
  at        bigint  NOT NULL,
  sent      bigint  NOT NULL,
  acked     bigint  NOT NULL,
  nacked    bigint  NOT NULL,
  died      bigint  NOT NULL,
  delivered bigint  NOT NULL,
  times0 bigint NOT NULL DEFAULT 0, times1 bigint NOT NULL DEFAULT 0, times2 bigint NOT NULL DEFAULT 0, times3 bigint NOT NULL DEFAULT 0, times4 bigint NOT NULL DEFAULT 0, times5 bigint NOT NULL DEFAULT 0, times6 bigint NOT NULL DEFAULT 0, times7 bigint NOT NULL DEFAULT 0, times8 bigint NOT NULL DEFAULT 0, times9 bigint NOT NULL DEFAULT 0, times10 bigint NOT NULL DEFAULT 0, times11 bigint NOT NULL DEFAULT 0, times12 bigint NOT NULL DEFAULT 0, times13 bigint NOT NULL DEFAULT 0, times14 bigint NOT NULL DEFAULT 0, times15 bigint NOT NULL DEFAULT 0, times16 bigint NOT NULL DEFAULT 0, times17 bigint NOT NULL DEFAULT 0, times18 bigint NOT NULL DEFAULT 0, times19 bigint NOT NULL DEFAULT 0, times20 bigint NOT NULL DEFAULT 0, times21 bigint NOT NULL DEFAULT 0, times22 bigint NOT NULL DEFAULT 0, times23 bigint NOT NULL DEFAULT 0, times24 bigint NOT NULL DEFAULT 0, times25 bigint NOT NULL DEFAULT 0, times26 bigint NOT NULL DEFAULT 0, times27 bigint NOT NULL DEFAULT 0, times28 bigint NOT NULL DEFAULT 0, times29 bigint NOT NULL DEFAULT 0,
  step      integer NOT NULL,
  ready     integer,
  scheduled integer,
  leased    integer,
  dead      integer,
  oldest    bigint,
  queue     text COLLATE "C" NOT NULL,
  CONSTRAINT "pk_chanq__samples" PRIMARY KEY (queue, step, at)
) WITH (fillfactor = 70);
