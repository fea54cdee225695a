WITH RECURSIVE t AS MATERIALIZED (
  SELECT $3::integer AS groups, $4::integer AS n
),
g (no, cause, fingerprint) AS (
  SELECT 0, $1::smallint, $2::bigint
  UNION ALL
  SELECT g.no + 1, coalesce(a.cause, b.cause, c.cause), coalesce(a.fingerprint, c.fingerprint, 9223372036854775807)
  FROM g
  LEFT JOIN LATERAL (
    SELECT d.cause, d.fingerprint FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint > g.fingerprint
    ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1) AS a ON true
  LEFT JOIN LATERAL (
    SELECT d.cause FROM "public"."chanq_orders__dead" AS d WHERE a.cause IS NULL AND d.cause = g.cause AND d.fingerprint IS NULL AND g.fingerprint < 9223372036854775807
    ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1) AS b ON true
  LEFT JOIN LATERAL (
    SELECT d.cause, d.fingerprint FROM "public"."chanq_orders__dead" AS d WHERE a.cause IS NULL AND b.cause IS NULL AND d.cause > g.cause
    ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1) AS c ON true
  WHERE g.no < (SELECT groups FROM t) AND coalesce(a.cause, b.cause, c.cause) IS NOT NULL
)
SELECT g.cause, nullif(g.fingerprint, 9223372036854775807) AS fingerprint, c.messages, b.ended_at AS first, l.ended_at AS last, uuid_send(l.id) AS id,
  convert_to(left(l.last_error, 2000), getdatabaseencoding()) AS last_error
FROM g
CROSS JOIN LATERAL (
  SELECT count(*) AS messages FROM (
      (SELECT 1 FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint = g.fingerprint
      ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT (SELECT n FROM t))
      UNION ALL (SELECT 1 FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint IS NULL AND g.fingerprint = 9223372036854775807
      ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT (SELECT n FROM t))) AS e) AS c
CROSS JOIN LATERAL (
      (SELECT d.ended_at FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint = g.fingerprint
      ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1)
      UNION ALL (SELECT d.ended_at FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint IS NULL AND g.fingerprint = 9223372036854775807
      ORDER BY d.cause, d.fingerprint, d.ended_at, d.id LIMIT 1)) AS b
CROSS JOIN LATERAL (
      (SELECT d.ended_at, d.id, d.last_error FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint = g.fingerprint
      ORDER BY d.cause DESC, d.fingerprint DESC, d.ended_at DESC, d.id DESC LIMIT 1)
      UNION ALL (SELECT d.ended_at, d.id, d.last_error FROM "public"."chanq_orders__dead" AS d WHERE d.cause = g.cause AND d.fingerprint IS NULL AND g.fingerprint = 9223372036854775807
      ORDER BY d.cause DESC, d.fingerprint DESC, d.ended_at DESC, d.id DESC LIMIT 1)) AS l
WHERE g.no > 0
ORDER BY g.no;
