SELECT 10, EXISTS (
  SELECT 1 FROM "main"."chanq__samples" AS s, (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now) AS t
  WHERE s.queue = 'orders' AND s.step = 10 AND s.at = t.now - t.now % 10000 AND s.ready IS NOT NULL);
