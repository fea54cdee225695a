WITH n AS MATERIALIZED (
  SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END AS number FROM "public"."chanq_orders_seq"
)
SELECT ((n.number + 1) << 20) - 1 AS drawn, coalesce(l.senders, '') AS senders
FROM n
CROSS JOIN LATERAL (
  SELECT string_agg(CASE WHEN l.virtualtransaction LIKE '-1/%' THEN '*' ELSE l.virtualtransaction END, ' ') AS senders
  FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.classid = 1667788399 AND l.objid = (hashtext('"public"."chanq_orders"')::bigint & 4294967295)::oid AND l.objsubid = 2
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND n.number IS NOT NULL) AS l;
