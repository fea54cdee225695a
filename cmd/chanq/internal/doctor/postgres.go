package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// oldestPostgres is the first version that chanq is tested with.
const oldestPostgres = 130_000

// postgres checks the information that every role of PostgreSQL may see, and the information for
// roles in pg_monitor.
func (e *examination) postgres() {
	var number int
	var version string
	if e.ask("version", `SELECT current_setting('server_version_num')::integer, current_setting('server_version')`, &number, &version) {
		f := Finding{Check: "version", Status: OK, Found: "PostgreSQL " + version}
		if number < oldestPostgres {
			f.Status, f.Remedy = Failure, "chanq needs PostgreSQL 13 or later"
		}
		e.add(f)
	}
	e.writable()
	e.disk()
	e.triggers()
	e.pooler()
	e.connections()
	e.autovacuum()
	e.horizon()
	e.waiting()
	e.wear()
}

// writable checks whether this connection can write: sends would wait without end for a server that can.
func (e *examination) writable() {
	var standby bool
	var only string
	if !e.ask("writes", `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')`, &standby, &only) {
		return
	}
	switch {
	case standby:
		e.add(Finding{Check: "writes", Status: Failure, Found: "this server is a standby, which accepts no writes", Remedy: "give a DSN of the primary, or target_session_attrs=read-write with all servers"})
	case only == "on":
		e.add(Finding{Check: "writes", Status: Failure, Found: "default_transaction_read_only is on", Remedy: "set it to off for this role, this database and this connection"})
	default:
		e.ok("writes", "the server accepts writes")
	}
}

// triggers finds triggers and rules of other programs, which may drop a message without an error.
func (e *examination) triggers() {
	const text = `SELECT c.relname, 'the trigger ' || t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE c.relname LIKE 'chanq\_%' AND NOT t.tgisinternal AND t.tgenabled <> 'D'
UNION ALL
SELECT c.relname, 'the rule ' || r.rulename FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class WHERE c.relname LIKE 'chanq\_%' AND c.relkind IN ('r', 'p')
ORDER BY 1, 2 LIMIT 20`
	n := 0
	if e.rows("triggers", text, func(rows *sql.Rows) error {
		var table, what string
		err := rows.Scan(&table, &what)
		n++
		e.add(Finding{Check: "triggers", Status: Warning, Found: table + " has " + what, Remedy: "see that it never drops or changes a row: a message that a trigger drops is lost without an error"})
		return err
	}) && n == 0 {
		e.ok("triggers", "no trigger or rule of another program is on chanq's tables")
	}
}

// pooler checks whether a connection is a process of the server. Behind a pooler that assigns them
// per transaction, two open connections reach one process, or statements of one connection reach two.
func (e *examination) pooler() {
	ctx, cancel := context.WithTimeout(e.ctx, e.Look)
	defer cancel()
	var conns [2]*sql.Conn
	for i := range conns {
		var err error
		if conns[i], err = e.DB.Conn(ctx); err != nil {
			e.unseen("pooler", "", err)
			return
		}
		defer conns[i].Close()
	}
	owners := map[int]int{} // connections by process
	pooled := false
	for i := range 8 {
		var pid int
		if err := conns[i%2].QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			e.unseen("pooler", "", err)
			return
		}
		owner, known := owners[pid]
		pooled = pooled || known && owner != i%2
		owners[pid] = i % 2
	}
	if pooled || len(owners) > len(conns) {
		e.add(Finding{Check: "pooler", Status: Warning, Found: "a pooler assigns connections per transaction",
			Remedy: "chanq works behind one; pgx must not prepare statements then (default_query_exec_mode=exec), and pgnotify needs a DSN that goes to the server itself"})
		return
	}
	e.ok("pooler", "each connection is a process of the server")
}

// disk checks whether the server waits for its disk at all. If it writes to a durable service, as
// Neon does, this setting does not matter.
func (e *examination) disk() {
	var fsync, pages string
	if !e.ask("disk", `SELECT current_setting('fsync'), current_setting('full_page_writes')`, &fsync, &pages) {
		return
	}
	f := Finding{Check: "disk", Status: OK, Found: "fsync is " + fsync + ", full_page_writes is " + pages}
	if fsync != "on" || pages != "on" {
		f.Status, f.Remedy = Warning, "ALTER SYSTEM SET fsync = on, full_page_writes = on, and SELECT pg_reload_conf(), unless the server's storage needs neither: else a crash of the machine loses what was confirmed, or the whole database"
	}
	e.add(f)
}

// aConsumers is the most connections that a consumer uses.
const aConsumers = 5

// connections checks how many connections are left to this role in this database, according to three
// limits.
func (e *examination) connections() {
	const text = `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
  (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()), (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
  (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user), (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user)`
	var limits [3]struct{ used, most int }
	if !e.ask("connections", text, &limits[0].used, &limits[0].most, &limits[1].used, &limits[1].most, &limits[2].used, &limits[2].most) {
		return
	}
	f := Finding{Check: "connections", Status: OK, Found: fmt.Sprintf("%d of %d connections are taken", limits[0].used, limits[0].most)}
	for i, l := range limits {
		of := [...]string{"max_connections", "the limit of this database (ALTER DATABASE … CONNECTION LIMIT)", "the limit of this role (ALTER ROLE … CONNECTION LIMIT)"}[i]
		if l.most >= 0 && (l.most < aConsumers || l.used*10 > l.most*9) {
			f.Status, f.Found = Warning, fmt.Sprintf("%d of %d connections are taken, by %s", l.used, l.most, of)
			f.Remedy = fmt.Sprintf("set SetMaxOpenConns on each program's *sql.DB (a consumer uses up to %d), put a pooler in between, or raise the limit", aConsumers)
			break
		}
	}
	e.add(f)
}

// autovacuum checks for settings that prevent the cleanup of the tables.
func (e *examination) autovacuum() {
	var on, counts, naptime string
	if e.ask("autovacuum", `SELECT current_setting('autovacuum'), current_setting('track_counts'), current_setting('autovacuum_naptime')`, &on, &counts, &naptime) {
		f := Finding{Check: "autovacuum", Status: OK, Found: "autovacuum is " + on + ", every " + naptime}
		if on != "on" || counts != "on" {
			f.Status, f.Found, f.Remedy = Failure, "autovacuum is "+on+", track_counts is "+counts, "ALTER SYSTEM SET autovacuum = on, track_counts = on, and SELECT pg_reload_conf(): without them tables grow, and the server stops before its transaction numbers are used up"
		}
		e.add(f)
	}
	var off []string
	if e.rows("autovacuum", `SELECT c.relname FROM pg_class AS c WHERE c.relname LIKE 'chanq\_%' AND c.relkind = 'r' AND array_to_string(c.reloptions, ',') ~ 'autovacuum_enabled=(false|off|0)'`, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		off = append(off, name)
		return err
	}) && len(off) > 0 {
		e.add(Finding{Check: "autovacuum", Status: Warning, Found: "it is off for " + strings.Join(off, ", "), Remedy: "ALTER TABLE … RESET (autovacuum_enabled)"})
	}
}

// horizon finds what prevents dead rows from being vacuumed. Until then claims read them.
func (e *examination) horizon() {
	long := fmt.Sprintf("interval '%f seconds'", e.Long.Seconds())
	text := `SELECT 'session ' || pid || ' of ' || coalesce(nullif(application_name, ''), 'an unnamed program') || ', ' || coalesce(state, 'state not shown') ||
  coalesce((SELECT ', with rows of ' || string_agg(DISTINCT c.relname, ', ') || ' locked' FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
    WHERE l.pid = a.pid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND c.relkind = 'r' AND c.relname LIKE 'chanq\_%' AND l.mode IN ('RowShareLock', 'RowExclusiveLock')), ''),
  extract(epoch FROM clock_timestamp() - xact_start)::float8, 'end its transaction; if its program cannot, SELECT pg_terminate_backend(' || pid || '); idle_in_transaction_session_timeout ends such transactions automatically'
FROM pg_stat_activity AS a WHERE xact_start < clock_timestamp() - ` + long + ` AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
  AND coalesce(datname, current_database()) = current_database() AND backend_type <> 'autovacuum worker'
UNION ALL
SELECT 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::float8, 'COMMIT PREPARED or ROLLBACK PREPARED ' || quote_literal(gid)
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - ` + long + `
UNION ALL
SELECT 'replication slot ' || slot_name || CASE WHEN active THEN '' ELSE ', not in use' END, NULL, 'if it is not needed, SELECT pg_drop_replication_slot(' || quote_literal(slot_name) || '); else start its subscriber'
FROM pg_replication_slots WHERE xmin IS NOT NULL AND age(xmin) > 100000 OR catalog_xmin IS NOT NULL AND age(catalog_xmin) > 1000000
ORDER BY 2 DESC NULLS LAST LIMIT 20`
	old := 0
	if !e.rows("long transactions", text, func(rows *sql.Rows) error {
		var session, remedy string
		var seconds sql.NullFloat64
		if err := rows.Scan(&session, &seconds, &remedy); err != nil {
			return err
		}
		if seconds.Valid {
			session += fmt.Sprintf(", open for %v", round(time.Duration(seconds.Float64*float64(time.Second))))
		}
		old++
		e.add(Finding{Check: "long transactions", Status: Warning, Found: session + ": rows that died since then cannot be vacuumed", Remedy: remedy})
		return nil
	}) {
		return
	}
	if old == 0 {
		e.ok("long transactions", "no session has kept a snapshot for longer than %v", e.Long)
	}
}

// waiting finds sessions that wait for rows of chanq's tables, and the sessions that hold those
// locks.
func (e *examination) waiting() {
	text := `SELECT w.pid, extract(epoch FROM clock_timestamp() - w.query_start)::float8, array_to_string(pg_blocking_pids(w.pid), ', '),
  coalesce((SELECT string_agg(coalesce(nullif(b.application_name, ''), 'an unnamed program') || ' (' || coalesce(b.state, 'state not shown') || ')', ', ') FROM pg_stat_activity AS b WHERE b.pid = ANY (pg_blocking_pids(w.pid))), 'no session that this role can see')
FROM pg_stat_activity AS w
WHERE w.datname = current_database() AND w.wait_event_type = 'Lock' AND w.query ~ 'chanq_' AND cardinality(pg_blocking_pids(w.pid)) > 0 AND w.query_start < clock_timestamp() - ` + fmt.Sprintf("interval '%f seconds'", e.Wait.Seconds()) + `
ORDER BY w.query_start LIMIT 20`
	n := 0
	if e.rows("locks", text, func(rows *sql.Rows) error {
		var pid int
		var seconds float64
		var blockers, session string
		if err := rows.Scan(&pid, &seconds, &blockers, &session); err != nil {
			return err
		}
		n++
		e.add(Finding{Check: "locks", Status: Warning,
			Found:  fmt.Sprintf("session %d has waited for %v, for %s: %s", pid, round(time.Duration(seconds*float64(time.Second))), blockers, session),
			Remedy: "a transaction that changed messages (SendTx, AckTx or SQL) is open: end it soon after the change; SELECT pg_terminate_backend(" + blockers + ") ends a session without an owner"})
		return nil
	}) && n == 0 {
		e.ok("locks", "no session waits for rows of chanq's tables")
	}
}

// wear checks the number of dead rows.
func (e *examination) wear() {
	schema := e.Config.Schema
	if schema == "" {
		schema = "public"
	}
	const text = `SELECT relname, n_live_tup, n_dead_tup, extract(epoch FROM clock_timestamp() - greatest(last_vacuum, last_autovacuum))::float8
FROM pg_stat_user_tables WHERE relname LIKE 'chanq\_%' AND n_dead_tup > 50000 AND n_dead_tup > 5 * n_live_tup AND schemaname = `
	n := 0
	if e.rows("dead rows", text+"'"+strings.ReplaceAll(schema, "'", "''")+"'", func(rows *sql.Rows) error {
		var table string
		var live, dead int64
		var ago sql.NullFloat64
		if err := rows.Scan(&table, &live, &dead, &ago); err != nil {
			return err
		}
		n++
		last := "never vacuumed"
		if ago.Valid {
			last = fmt.Sprintf("last vacuumed %v ago", round(time.Duration(ago.Float64*float64(time.Second))))
		}
		e.add(Finding{Check: "dead rows", Status: Warning, Found: fmt.Sprintf("%s has %d dead rows and %d live ones, %s", table, dead, live, last),
			Remedy: "end the sessions that long transactions names; consumers vacuum the table if their role has the permission (docs/rights/postgres.sql); to do it once: VACUUM " + table})
		return nil
	}) && n == 0 {
		e.ok("dead rows", "no table of chanq's has many")
	}
}
