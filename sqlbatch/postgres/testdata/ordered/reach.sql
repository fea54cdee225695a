SELECT min(CASE WHEN f.n >= $2::bigint THEN f.seq ELSE 9223372036854775807 END) AS seq
FROM "public"."chanq_slots" AS s
CROSS JOIN LATERAL (
  SELECT count(*) AS n, max(e.seq) AS seq FROM (
    SELECT l.seq FROM (
      SELECT q.seq FROM "public"."chanq_orders" AS q
      WHERE (q.slot, q.seq) > (s.slot, $1::bigint) AND q.slot <= s.slot
      ORDER BY q.slot, q.seq LIMIT 1000) AS l
    LIMIT (SELECT $2::bigint)) AS e) AS f
WHERE s.queue = 'orders';
