SELECT 'form' AS kind, 'the table ' || '"public"."chanq_orders"' || ' has no column ' || c.name AS found
FROM (VALUES ('lapses'), ('type')) AS c (name)
WHERE to_regclass('"public"."chanq_orders"') IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass('"public"."chanq_orders"') AND a.attname = c.name)
UNION ALL
SELECT 'encoding', 'the database''s encoding is ' || current_setting('server_encoding') || ', and chanq needs ' || $1::text
WHERE current_setting('server_encoding') NOT IN ($1::text, 'SQL_ASCII')
UNION ALL
SELECT 'durability', 'synchronous_commit is off'
WHERE current_setting('synchronous_commit') = 'off'
UNION ALL
SELECT 'durability', 'the table ' || t.name || ' is not logged'
FROM (VALUES ('"public"."chanq_orders"'), ('"public"."chanq_orders__dead"'), ('"public"."chanq_orders__done"'), ('"public"."chanq__queues"')) AS t (name) JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(t.name) WHERE c.relpersistence <> 'p'
UNION ALL
SELECT 'hidden', 'row-level security hides rows of the table ' || t.name || ' from the role ' || current_user
FROM (VALUES ('"public"."chanq_orders"'), ('"public"."chanq_orders__dead"'), ('"public"."chanq_orders__done"'), ('"public"."chanq__queues"')) AS t (name) JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(t.name) WHERE row_security_active(c.oid)
UNION ALL
SELECT 'table', t.name || ' is not a table'
FROM (VALUES ('"public"."chanq_orders"'), ('"public"."chanq_orders__dead"'), ('"public"."chanq_orders__done"'), ('"public"."chanq__queues"')) AS t (name) JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(t.name) WHERE c.relkind NOT IN ('r', 'p')
UNION ALL
SELECT 'node', 'the queue is ordered, and this node of Citus draws other numbers than the coordinator'
FROM pg_catalog.pg_sequence AS s WHERE s.seqrelid = to_regclass('"public"."chanq_orders__seq"') AND s.seqmin > 1;
