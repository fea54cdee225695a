SELECT 'form' AS kind, 'table ' || 'chanq_orders' || ' has no column alone' AS found
WHERE EXISTS (SELECT 1 FROM pragma_table_info('chanq_orders', 'main'))
  AND (SELECT count(*) FROM pragma_table_info('chanq_orders', 'main') WHERE name = 'alone') < 1
UNION ALL
SELECT 'encoding', 'PRAGMA encoding is ' || encoding || ', not UTF-8' FROM pragma_encoding WHERE encoding <> 'UTF-8'
UNION ALL
SELECT 'durability', 'PRAGMA synchronous is ' || synchronous || ', below FULL (2)' FROM pragma_synchronous('main')
WHERE synchronous < 2 AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' COLLATE NOCASE AND file <> '')
UNION ALL
SELECT 'durability', 'PRAGMA journal_mode is ' || journal_mode FROM pragma_journal_mode('main')
WHERE journal_mode IN ('memory', 'off') AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' COLLATE NOCASE AND file <> '');
