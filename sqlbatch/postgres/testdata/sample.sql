INSERT INTO "public"."chanq__samples" AS s (queue, step, at, sent, acked, nacked, died, delivered, ready, scheduled, leased, dead, oldest,
  times0, times1, times2, times3, times4, times5, times6, times7, times8, times9, times10, times11, times12, times13, times14, times15, times16, times17, times18, times19, times20, times21, times22, times23)
SELECT 'orders', p.step, t.now - t.now % (1000 * p.step), $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint,
  $6::integer, $7::integer, $8::integer, $9::integer, $10::bigint,
  $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::bigint, $16::bigint, $17::bigint, $18::bigint, $19::bigint, $20::bigint, $21::bigint, $22::bigint, $23::bigint, $24::bigint, $25::bigint, $26::bigint, $27::bigint, $28::bigint, $29::bigint, $30::bigint, $31::bigint, $32::bigint, $33::bigint, $34::bigint
FROM (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now) AS t CROSS JOIN (VALUES (10), (60), (3600)) AS p (step)
ORDER BY p.step
ON CONFLICT (queue, step, at) DO UPDATE SET
  sent = s.sent + excluded.sent, acked = s.acked + excluded.acked, nacked = s.nacked + excluded.nacked, died = s.died + excluded.died,
  delivered = s.delivered + excluded.delivered,
  times0 = s.times0 + excluded.times0, times1 = s.times1 + excluded.times1, times2 = s.times2 + excluded.times2, times3 = s.times3 + excluded.times3, times4 = s.times4 + excluded.times4, times5 = s.times5 + excluded.times5, times6 = s.times6 + excluded.times6, times7 = s.times7 + excluded.times7, times8 = s.times8 + excluded.times8, times9 = s.times9 + excluded.times9, times10 = s.times10 + excluded.times10, times11 = s.times11 + excluded.times11, times12 = s.times12 + excluded.times12, times13 = s.times13 + excluded.times13, times14 = s.times14 + excluded.times14, times15 = s.times15 + excluded.times15, times16 = s.times16 + excluded.times16, times17 = s.times17 + excluded.times17, times18 = s.times18 + excluded.times18, times19 = s.times19 + excluded.times19, times20 = s.times20 + excluded.times20, times21 = s.times21 + excluded.times21, times22 = s.times22 + excluded.times22, times23 = s.times23 + excluded.times23,
  ready = greatest(s.ready, excluded.ready), scheduled = greatest(s.scheduled, excluded.scheduled), leased = greatest(s.leased, excluded.leased),
  dead = greatest(s.dead, excluded.dead), oldest = greatest(s.oldest, excluded.oldest)
RETURNING s.step, (s.ready IS NOT NULL)::integer;
