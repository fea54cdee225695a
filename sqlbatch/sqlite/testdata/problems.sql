SELECT 'form' AS kind, 'table ' || 'chanq_orders' || ' has no column ' || c.name AS found
FROM (SELECT 'lapses' AS name UNION ALL SELECT 'type') AS c
WHERE EXISTS (SELECT 1 FROM pragma_table_info('chanq_orders', 'main'))
  AND NOT EXISTS (SELECT 1 FROM pragma_table_info('chanq_orders', 'main') AS i WHERE i.name = c.name)
UNION ALL
SELECT 'encoding', 'PRAGMA encoding is ' || encoding || ', not UTF-8' FROM pragma_encoding WHERE encoding <> 'UTF-8'
UNION ALL
SELECT 'durability', 'PRAGMA synchronous is ' || synchronous || ', below FULL (2)' FROM pragma_synchronous('main')
WHERE synchronous < 2 AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' COLLATE NOCASE AND file <> '')
UNION ALL
SELECT 'durability', 'PRAGMA journal_mode is ' || journal_mode FROM pragma_journal_mode('main')
WHERE journal_mode IN ('memory', 'off') AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' COLLATE NOCASE AND file <> '')
UNION ALL
SELECT 'table', m.name || ' is a ' || m.type || ', not a table' FROM "main".sqlite_master AS m
WHERE m.type <> 'table' AND m.name IN ('chanq_orders', 'chanq_orders' || '__dead', 'chanq_orders' || '__done', 'chanq__queues')
UNION ALL
SELECT 'memory', 'the database is in memory, and each connection of the *sql.DB has another one'
WHERE EXISTS (SELECT 1 FROM pragma_database_list AS d CROSS JOIN pragma_locking_mode(d.name) AS l WHERE d.seq = 0 AND d.file = '' AND l.locking_mode = 'exclusive')
  AND EXISTS (SELECT 1 FROM main.sqlite_master WHERE name = 'chanq__queues');
