SELECT at, ready, scheduled, leased, dead, oldest, sent, acked, nacked, died, delivered, waited
FROM "public"."chanq__samples" WHERE queue = 'orders' AND step = $2::integer AND at >= $1::bigint ORDER BY at;
