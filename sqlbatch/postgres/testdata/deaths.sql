SELECT cause, fingerprint, ((SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - ended_at) / 60000 AS ago
FROM "public"."chanq_orders__dead" WHERE ended_at > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) - 3600000 ORDER BY ended_at DESC LIMIT $1::integer;
