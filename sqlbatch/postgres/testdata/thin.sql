DELETE FROM "public"."chanq__samples"
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM "public"."chanq__samples" WHERE queue = 'orders' AND (step = 10 AND at < (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 7200000 OR step = 60 AND at < (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 172800000 OR step = 3600 AND at < (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 7776000000)
  LIMIT 1000 FOR UPDATE SKIP LOCKED));
