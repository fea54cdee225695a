INSERT INTO "public"."chanq__samples" AS s (queue, step, at, sent, acked, nacked, died, delivered, waited, ready, scheduled, leased, dead, oldest)
SELECT 'orders', p.step, t.now - t.now % (1000 * p.step), $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint,
  $7::integer, $8::integer, $9::integer, $10::integer, $11::bigint
FROM (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now) AS t CROSS JOIN (VALUES (10), (60), (3600)) AS p (step)
ORDER BY p.step
ON CONFLICT (queue, step, at) DO UPDATE SET
  sent = s.sent + excluded.sent, acked = s.acked + excluded.acked, nacked = s.nacked + excluded.nacked, died = s.died + excluded.died,
  delivered = s.delivered + excluded.delivered, waited = s.waited + excluded.waited,
  ready = greatest(s.ready, excluded.ready), scheduled = greatest(s.scheduled, excluded.scheduled), leased = greatest(s.leased, excluded.leased),
  dead = greatest(s.dead, excluded.dead), oldest = greatest(s.oldest, excluded.oldest)
RETURNING s.step, (s.ready IS NOT NULL)::integer;
