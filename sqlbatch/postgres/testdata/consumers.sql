SELECT uuid_send(m.id) AS id, convert_to(m.name, getdatabaseencoding()) AS name, convert_to(m.host, getdatabaseencoding()) AS host, m.process, m.since, m.until, coalesce(m.heard_at, (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)) AS heard_at
FROM "public"."chanq__consumers" AS m
WHERE m.queue = 'orders' AND m.until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c)
ORDER BY m.since, m.id;
