CREATE TABLE IF NOT EXISTS "main"."chanq__samples" (
  queue     TEXT    NOT NULL,
  step      INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  ready     INTEGER,
  scheduled INTEGER,
  leased    INTEGER,
  dead      INTEGER,
  oldest    INTEGER,
  sent      INTEGER NOT NULL,
  acked     INTEGER NOT NULL,
  nacked    INTEGER NOT NULL,
  died      INTEGER NOT NULL,
  delivered INTEGER NOT NULL,
  waited    INTEGER NOT NULL,
  PRIMARY KEY (queue, step, at)
) WITHOUT ROWID;
