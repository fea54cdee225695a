SELECT at, ready, scheduled, leased, dead, oldest, sent, acked, nacked, died, delivered, waited
FROM "main"."chanq__samples" WHERE queue = 'orders' AND step = ?2 AND at >= ?1 ORDER BY at;
