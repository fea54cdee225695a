SELECT
  pg_stat_get_dead_tuples(c.oid) + pg_stat_get_dead_tuples(c.reltoastrelid) AS dead,
  pg_stat_get_live_tuples(c.oid) + pg_stat_get_live_tuples(c.reltoastrelid) AS live,
  pg_stat_get_vacuum_count(c.oid) + pg_stat_get_autovacuum_count(c.oid) AS vacuums,
  CASE
    WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_database AS d WHERE d.datname = current_database() AND pg_has_role(d.datdba, 'USAGE')) THEN NULL
    WHEN current_setting('server_version_num')::integer < 170000 THEN
      CASE WHEN NOT pg_has_role(c.relowner, 'USAGE') THEN format('before PostgreSQL 17 only the owner of %s may, %I: have one consumer log in as a member of that role', c.oid::regclass, pg_get_userbyid(c.relowner)) END
    WHEN NOT has_table_privilege(c.oid, 'MAINTAIN') THEN format('GRANT MAINTAIN ON %s TO %I', c.oid::regclass, current_user)
  END AS denied
FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass('"public"."chanq_orders"');
