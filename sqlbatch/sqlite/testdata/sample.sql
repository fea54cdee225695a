INSERT INTO "main"."chanq__samples" (queue, step, at, sent, acked, nacked, died, delivered, waited, ready, scheduled, leased, dead, oldest)
SELECT 'orders', p.column1, t.now - t.now % (1000 * p.column1), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now) AS t CROSS JOIN (VALUES (10), (60), (3600)) AS p
WHERE true
ON CONFLICT (queue, step, at) DO UPDATE SET
  sent = sent + excluded.sent, acked = acked + excluded.acked, nacked = nacked + excluded.nacked, died = died + excluded.died,
  delivered = delivered + excluded.delivered, waited = waited + excluded.waited,
  ready = coalesce(max(ready, excluded.ready), excluded.ready, ready),
  scheduled = coalesce(max(scheduled, excluded.scheduled), excluded.scheduled, scheduled),
  leased = coalesce(max(leased, excluded.leased), excluded.leased, leased),
  dead = coalesce(max(dead, excluded.dead), excluded.dead, dead),
  oldest = coalesce(max(oldest, excluded.oldest), excluded.oldest, oldest)
RETURNING step, ready IS NOT NULL;
