CREATE OR REPLACE VIEW "public"."chanq_orders__messages" AS
SELECT m.state, m.id, m.priority,
  to_timestamp(m.due_at / 1000.0) AS due_at, to_timestamp(m.lease_until / 1000.0) AS lease_until,
  to_timestamp(m.enqueued_at / 1000.0) AS enqueued_at, to_timestamp(m.expires_at / 1000.0) AS expires_at, to_timestamp(m.ended_at / 1000.0) AS ended_at,
  m.attempts, m.dedup_key, m.type, m.slot, m.seq, m.order_key,
  CASE WHEN encode(m.headers, 'hex') ~ '^(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|(?:e[1-9abcef])(?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[123](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*(?:[cdef][0-9a-f](?:[89ab][0-9a-f]){0,2})?$'
    THEN convert_from(decode(substring(encode(m.headers, 'hex') FROM '^(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|(?:e[1-9abcef])(?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[123](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*'), 'hex'), 'UTF8')
    ELSE encode(m.headers, 'escape') END AS headers,
  CASE WHEN encode(m.body, 'hex') ~ '^(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|(?:e[1-9abcef])(?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[123](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*(?:[cdef][0-9a-f](?:[89ab][0-9a-f]){0,2})?$'
    THEN convert_from(decode(substring(encode(m.body, 'hex') FROM '^(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|(?:e[1-9abcef])(?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[123](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*'), 'hex'), 'UTF8')
    ELSE encode(m.body, 'escape') END AS body,
  m.bytes, m.last_error
FROM (
  SELECT CASE WHEN q.lease_until > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) THEN 'leased' WHEN q.due_at > (SELECT c.v FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS v) AS c) THEN 'scheduled' ELSE 'ready' END AS state,
    q.id, q.priority, q.due_at, CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until, q.enqueued_at, q.expires_at, NULL::bigint AS ended_at,
    q.attempts, q.dedup_key, q.type, q.slot, q.seq, q.order_key, substring(q.headers FROM 1 FOR 4000) AS headers, substring(q.body FROM 1 FOR 4000) AS body, octet_length(q.body) AS bytes, q.last_error
  FROM (SELECT 1) AS p
  CROSS JOIN LATERAL (SELECT * FROM (SELECT q.* FROM "public"."chanq_orders" AS q WHERE (q.seq, q.slot) > (0::bigint, 32767::smallint) ORDER BY q.seq LIMIT 1000) AS l LIMIT (SELECT 1000)) AS q
  UNION ALL
  SELECT 'dead', d.id, d.priority, NULL, NULL, d.enqueued_at, NULL, d.ended_at,
    d.attempts, d.dedup_key, d.type, d.slot, d.seq, d.order_key, substring(d.headers FROM 1 FOR 4000), substring(d.body FROM 1 FOR 4000), octet_length(d.body), d.last_error
  FROM (SELECT e.* FROM "public"."chanq_orders__dead" AS e ORDER BY e.ended_at DESC, e.id DESC LIMIT 1000) AS d
) AS m;
