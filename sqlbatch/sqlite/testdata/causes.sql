WITH RECURSIVE g(no, cause, fingerprint) AS (
  SELECT 0, ?1 + 0, ?2 + 0
  UNION ALL
  SELECT g.no + 1, d.cause, ifnull(d.fingerprint, (-9223372036854775807 - 1))
  FROM g CROSS JOIN "main"."chanq_orders__dead" AS d ON d.rowid = ifnull(
    (SELECT f.rowid FROM "main"."chanq_orders__dead" AS f INDEXED BY "ix_chanq_orders__dead_cause" WHERE f.cause = g.cause AND f.fingerprint > g.fingerprint ORDER BY f.fingerprint LIMIT 1),
    (SELECT f.rowid FROM "main"."chanq_orders__dead" AS f INDEXED BY "ix_chanq_orders__dead_cause" WHERE f.cause > g.cause ORDER BY f.cause, f.fingerprint LIMIT 1))
  WHERE g.no < ?3
)
SELECT g.cause, nullif(g.fingerprint, (-9223372036854775807 - 1)) AS fingerprint,
  (SELECT count(*) FROM (SELECT 1 FROM "main"."chanq_orders__dead" AS d INDEXED BY "ix_chanq_orders__dead_cause" WHERE d.cause = g.cause AND d.fingerprint IS nullif(g.fingerprint, (-9223372036854775807 - 1)) LIMIT ?4 + 0)) AS messages,
  (SELECT d.ended_at FROM "main"."chanq_orders__dead" AS d INDEXED BY "ix_chanq_orders__dead_cause" WHERE d.cause = g.cause AND d.fingerprint IS nullif(g.fingerprint, (-9223372036854775807 - 1)) ORDER BY d.ended_at, d.id LIMIT 1) AS first,
  l.ended_at AS last, l.id, substr(l.last_error, 1, 2000) AS last_error
FROM g CROSS JOIN "main"."chanq_orders__dead" AS l ON l.rowid = (SELECT d.rowid FROM "main"."chanq_orders__dead" AS d INDEXED BY "ix_chanq_orders__dead_cause" WHERE d.cause = g.cause AND d.fingerprint IS nullif(g.fingerprint, (-9223372036854775807 - 1)) ORDER BY d.ended_at DESC, d.id DESC LIMIT 1)
WHERE g.no > 0
ORDER BY g.no;
