SELECT coalesce(min(e.seq), 9223372036854775807) AS seq
FROM "public"."chanq_slots" AS s
CROSS JOIN LATERAL (
  SELECT q.seq FROM "public"."chanq_orders" AS q
  WHERE (q.slot, q.seq) > (s.slot, $1::bigint) AND q.slot <= s.slot
  ORDER BY q.slot, q.seq OFFSET $2::bigint - 1 LIMIT 1) AS e
WHERE s.queue = 'orders';
