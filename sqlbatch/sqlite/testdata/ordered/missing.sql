SELECT count(*) AS missing FROM (VALUES ('ux_chanq_orders__dedup'), ('ix_chanq_orders__dead_ended'), ('ix_chanq_orders__dead_cause'), ('ix_chanq_orders__dead_dedup'), ('ix_chanq_orders__dead_new'), ('ix_chanq_orders__done_ended'), ('ix_chanq_orders__dead_key')) AS i
WHERE NOT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = 'index' AND m.name = i.column1);
