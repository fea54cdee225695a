package postgres

import "github.com/chanq/chanq/sqlbatch"

// wearText reads the statistics and the catalog, and no rows of the table. It adds the statistics of the TOAST table,
// where a body above 2 kB has a row for each 2 kB.
//
// VACUUM only warns if a permission is missing, so the statement reads the catalog. Before version 17 only the owners
// of the table and of the database may vacuum. From then on roles with MAINTAIN may as well; earlier versions refuse
// that word, so it is not evaluated there.
const wearText = `SELECT
  pg_stat_get_dead_tuples(c.oid) + pg_stat_get_dead_tuples(c.reltoastrelid) AS dead,
  pg_stat_get_live_tuples(c.oid) + pg_stat_get_live_tuples(c.reltoastrelid) AS live,
  pg_stat_get_vacuum_count(c.oid) + pg_stat_get_autovacuum_count(c.oid) AS vacuums,
  CASE
    WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_database AS d WHERE d.datname = current_database() AND pg_has_role(d.datdba, 'USAGE')) THEN NULL
    WHEN current_setting('server_version_num')::integer < 170000 THEN
      CASE WHEN NOT pg_has_role(c.relowner, 'USAGE') THEN format('before PostgreSQL 17 only the owner of %s may, %I: have one consumer log in as a member of that role', c.oid::regclass, pg_get_userbyid(c.relowner)) END
    WHEN NOT has_table_privilege(c.oid, 'MAINTAIN') THEN format('GRANT MAINTAIN ON %s TO %I', c.oid::regclass, current_user)
  END AS denied
FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass({'live'})`

func (q *queue) Bloat() sqlbatch.Statement { return sqlbatch.Statement{Text: q.wear} }

// vacuumText keeps the file's length, since cutting it takes a lock that claims wait for, and uses no parallel workers,
// which others might need more. If another process or autovacuum holds the lock of a vacuum, it does nothing.
const vacuumText = `VACUUM (SKIP_LOCKED, TRUNCATE OFF, PARALLEL 0) {live}`

func (q *queue) Vacuum() sqlbatch.Statement { return sqlbatch.Statement{Text: q.vacuum} }

// Files belong to the server.
func (q *queue) Shrink() sqlbatch.Statement { return sqlbatch.Statement{} }
