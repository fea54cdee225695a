SELECT 10 AS step, (EXISTS (
  SELECT FROM "public"."chanq__samples" AS s, (SELECT (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) AS now) AS t
  WHERE s.queue = 'orders' AND s.step = 10 AND s.at = t.now - t.now % 10000 AND s.ready IS NOT NULL)
  OR NOT (has_table_privilege('"public"."chanq__samples"', 'INSERT') AND has_table_privilege('"public"."chanq__samples"', 'UPDATE')) OR current_setting('transaction_read_only') = 'on')::integer AS counted;
