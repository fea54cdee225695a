INSERT INTO "main"."chanq__samples" (queue, step, at, sent, acked, nacked, died, delivered, ready, scheduled, leased, dead, oldest,
  times0, times1, times2, times3, times4, times5, times6, times7, times8, times9, times10, times11, times12, times13, times14, times15, times16, times17, times18, times19, times20, times21, times22, times23, times24, times25, times26, times27, times28, times29)
SELECT 'orders', p.column1, t.now - t.now % (1000 * p.column1), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
  ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now) AS t CROSS JOIN (VALUES (10), (60), (3600)) AS p
WHERE true
ON CONFLICT (queue, step, at) DO UPDATE SET
  sent = sent + excluded.sent, acked = acked + excluded.acked, nacked = nacked + excluded.nacked, died = died + excluded.died,
  delivered = delivered + excluded.delivered,
  times0 = times0 + excluded.times0, times1 = times1 + excluded.times1, times2 = times2 + excluded.times2, times3 = times3 + excluded.times3, times4 = times4 + excluded.times4, times5 = times5 + excluded.times5, times6 = times6 + excluded.times6, times7 = times7 + excluded.times7, times8 = times8 + excluded.times8, times9 = times9 + excluded.times9, times10 = times10 + excluded.times10, times11 = times11 + excluded.times11, times12 = times12 + excluded.times12, times13 = times13 + excluded.times13, times14 = times14 + excluded.times14, times15 = times15 + excluded.times15, times16 = times16 + excluded.times16, times17 = times17 + excluded.times17, times18 = times18 + excluded.times18, times19 = times19 + excluded.times19, times20 = times20 + excluded.times20, times21 = times21 + excluded.times21, times22 = times22 + excluded.times22, times23 = times23 + excluded.times23, times24 = times24 + excluded.times24, times25 = times25 + excluded.times25, times26 = times26 + excluded.times26, times27 = times27 + excluded.times27, times28 = times28 + excluded.times28, times29 = times29 + excluded.times29,
  ready = coalesce(max(ready, excluded.ready), excluded.ready, ready),
  scheduled = coalesce(max(scheduled, excluded.scheduled), excluded.scheduled, scheduled),
  leased = coalesce(max(leased, excluded.leased), excluded.leased, leased),
  dead = coalesce(max(dead, excluded.dead), excluded.dead, dead),
  oldest = coalesce(max(oldest, excluded.oldest), excluded.oldest, oldest)
RETURNING step, ready IS NOT NULL;
