SELECT coalesce(max(CASE WHEN e.n >= $2::bigint THEN e.seq END), 9223372036854775807) AS seq
FROM (
  SELECT l.seq, row_number() OVER () AS n FROM (
    SELECT q.seq FROM "public"."chanq_orders" AS q
    WHERE (q.seq, q.slot) > ($1::bigint, 32767::smallint)
    ORDER BY q.seq LIMIT 20000) AS l
  LIMIT (SELECT $2::bigint)) AS e;
