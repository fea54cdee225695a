package doctor

import (
	"database/sql"
	"fmt"
	"time"
)

// oldestServer and oldestBuild are SQL Server 2016 SP1.
const (
	oldestServer = 13
	oldestBuild  = 4001
)

// azure is the EngineEdition of Azure SQL Database, which has its own version numbers.
const azure = 5

// sqlServer checks the information that every login of SQL Server may see, and the information for
// logins with VIEW SERVER STATE.
func (e *examination) sqlServer() {
	e.sqlServerVersion()
	e.sqlServerSettings()
	e.sqlServerTransactions()
	e.sqlServerVersions()
	e.sqlServerReaders()
	e.sqlServerWaits()
}

func (e *examination) sqlServerVersion() {
	var version string
	var major, edition int
	if !e.ask("version", `SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')) AS version, CONVERT(int, SERVERPROPERTY('ProductMajorVersion')) AS major, CONVERT(int, SERVERPROPERTY('EngineEdition')) AS edition`, &version, &major, &edition) {
		return
	}
	f := Finding{Check: "version", Status: OK, Found: "SQL Server " + version}
	var build int // of "13.0.4001.0"
	_, _ = fmt.Sscanf(version, "%d.0.%d", &major, &build)
	if edition != azure && (major < oldestServer || major == oldestServer && build < oldestBuild) {
		f.Status, f.Remedy = Failure, "chanq needs SQL Server 2016 SP1 or later"
	}
	e.add(f)
}

// sqlServerSettings checks the settings of the database.
func (e *examination) sqlServerSettings() {
	var snapshot, isolation, autoClose bool
	var level int
	if !e.ask("settings", `SELECT d.is_read_committed_snapshot_on, CONVERT(bit, d.snapshot_isolation_state) AS isolation, d.is_auto_close_on, CONVERT(int, d.compatibility_level) AS level
FROM sys.databases AS d WHERE d.database_id = DB_ID()`, &snapshot, &isolation, &autoClose, &level) {
		return
	}
	e.add(Finding{Check: "settings", Status: OK, Found: fmt.Sprintf("READ_COMMITTED_SNAPSHOT is %s, compatibility level %d", onOff(snapshot), level), Remedy: rowVersions(snapshot)})
	if autoClose {
		e.add(Finding{Check: "settings", Status: Warning, Found: "AUTO_CLOSE is ON", Remedy: "ALTER DATABASE CURRENT SET AUTO_CLOSE OFF: the database is shut down and recovered whenever no session is connected"})
	}
	if level < 10*oldestServer {
		e.add(Finding{Check: "settings", Status: Warning, Found: fmt.Sprintf("the compatibility level is %d", level), Remedy: "ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130 or higher: with a lower one, the plans of statements might differ from those that chanq's hints request"})
	}
}

// rowVersions describes the better setting; chanq's own statements are as fast with either.
func rowVersions(on bool) string {
	if on {
		return ""
	}
	return "chanq works without it; however, a plain SELECT of its tables, for example by a report, waits for rows that are claimed or settled, and blocks claims and settles: " +
		"for such reports run ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON, which waits until no other session is connected, and costs row versions in tempdb"
}

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

// sqlServerTransactions finds transactions that keep ghosts and row versions, or lock rows.
func (e *examination) sqlServerTransactions() {
	text := `SELECT TOP (20) s.session_id, s.program_name, s.status, DATEDIFF(second, t.transaction_begin_time, SYSDATETIME()) AS seconds
FROM sys.dm_tran_session_transactions AS st
INNER JOIN sys.dm_tran_active_transactions AS t ON t.transaction_id = st.transaction_id
INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = st.session_id
WHERE s.session_id <> @@SPID AND s.is_user_process = 1 AND DATEDIFF(second, t.transaction_begin_time, SYSDATETIME()) > ` + fmt.Sprint(int(e.Long.Seconds())) + `
ORDER BY t.transaction_begin_time`
	n := 0
	if e.rows("long transactions", text, func(rows *sql.Rows) error {
		var session, seconds int
		var program sql.NullString
		var status string
		if err := rows.Scan(&session, &program, &status, &seconds); err != nil {
			return err
		}
		n++
		e.add(Finding{Check: "long transactions", Status: Warning,
			Found:  fmt.Sprintf("session %d of %s, %s, has a transaction open for %v: what it touched stays locked, and ghosts and row versions stay", session, named(program), status, time.Duration(seconds)*time.Second),
			Remedy: fmt.Sprintf("end its transaction; if its program cannot, KILL %d", session)})
		return nil
	}) && n == 0 {
		e.ok("long transactions", "no transaction has been open for longer than %v", e.Long)
	}
}

// named returns the name of a program, if it has one.
func named(program sql.NullString) string {
	if program.String == "" {
		return "an unnamed program"
	}
	return program.String
}

// sqlServerVersions finds sessions that keep row versions: a transaction at SNAPSHOT, or any
// statement if READ_COMMITTED_SNAPSHOT is on. Row versions fill tempdb, and keep ghosts.
func (e *examination) sqlServerVersions() {
	text := `SELECT TOP (20) v.session_id, v.elapsed_time_seconds, s.program_name
FROM sys.dm_tran_active_snapshot_database_transactions AS v
INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = v.session_id
WHERE v.elapsed_time_seconds > ` + fmt.Sprint(int(e.Long.Seconds())) + ` AND v.session_id <> @@SPID
ORDER BY v.elapsed_time_seconds DESC`
	n := 0
	if e.rows("old snapshots", text, func(rows *sql.Rows) error {
		var session, seconds int
		var program sql.NullString
		if err := rows.Scan(&session, &seconds, &program); err != nil {
			return err
		}
		n++
		e.add(Finding{Check: "old snapshots", Status: Warning,
			Found:  fmt.Sprintf("session %d of %s has kept row versions for %v: ghosts of acked messages stay, and tempdb grows", session, named(program), time.Duration(seconds)*time.Second),
			Remedy: fmt.Sprintf("end its transaction, or close its rows; if its program cannot, KILL %d", session)})
		return nil
	}) && n == 0 {
		e.ok("old snapshots", "no session has kept row versions for longer than %v", e.Long)
	}
}

// sqlServerReaders finds sessions that keep shared locks on the tables of queues: what they have read is neither claimed nor settled
// until they end.
func (e *examination) sqlServerReaders() {
	held := `FROM sys.dm_tran_locks AS l
    INNER JOIN sys.objects AS o ON CONVERT(nvarchar(128), o.name) COLLATE Latin1_General_BIN2 LIKE N'chanq[_]%' AND (l.resource_type = 'OBJECT' AND l.resource_associated_entity_id = o.object_id
        OR l.resource_type <> 'OBJECT' AND EXISTS (SELECT 1 FROM sys.partitions AS p WHERE p.hobt_id = l.resource_associated_entity_id AND p.object_id = o.object_id))
    WHERE l.request_session_id = s.session_id AND l.resource_database_id = DB_ID() AND l.request_status = 'GRANT' AND l.request_mode IN ('S', 'RangeS-S')`
	text := `SELECT TOP (20) s.session_id, s.program_name, s.host_name, s.status, CONVERT(int, s.transaction_isolation_level) AS level,
    DATEDIFF(second, t.transaction_begin_time, SYSDATETIME()) AS seconds, (SELECT MIN(o.name) ` + held + `) AS of_table
FROM sys.dm_tran_session_transactions AS st
INNER JOIN sys.dm_tran_active_transactions AS t ON t.transaction_id = st.transaction_id
INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = st.session_id
WHERE s.session_id <> @@SPID AND DATEDIFF(millisecond, t.transaction_begin_time, SYSDATETIME()) > ` + fmt.Sprint(e.Wait.Milliseconds()) + ` AND EXISTS (SELECT 1 ` + held + `)
ORDER BY t.transaction_begin_time`
	levels := [...]string{"an unknown isolation level", "READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT"}
	n := 0
	if e.rows("readers", text, func(rows *sql.Rows) error {
		var session, level, seconds int
		var program, host sql.NullString
		var status, table string
		if err := rows.Scan(&session, &program, &host, &status, &level, &seconds, &table); err != nil {
			return err
		}
		n++
		e.add(Finding{Check: "readers", Status: Warning,
			Found: fmt.Sprintf("session %d of %s on host %q, %s, at %s, has kept shared locks on %s for up to %v: what it has read is neither claimed nor settled, and sends into its ranges wait",
				session, named(program), host.String, status, levels[min(max(0, level), len(levels)-1)], table, time.Duration(seconds)*time.Second),
			Remedy: fmt.Sprintf("end its transaction; read the tables at READ COMMITTED or SNAPSHOT (the default of TransactionScope is SERIALIZABLE), without HOLDLOCK; if its program cannot, KILL %d", session)})
		return nil
	}) && n == 0 {
		e.ok("readers", "no session has kept shared locks on chanq's tables for longer than %v", e.Wait)
	}
}

// sqlServerWaits finds requests that wait for another session.
func (e *examination) sqlServerWaits() {
	text := `SELECT TOP (20) r.session_id, r.blocking_session_id, r.wait_time, r.wait_type
FROM sys.dm_exec_requests AS r
WHERE r.blocking_session_id > 0 AND r.wait_time > ` + fmt.Sprint(e.Wait.Milliseconds()) + ` AND r.database_id = DB_ID()
ORDER BY r.wait_time DESC`
	n := 0
	if e.rows("locks", text, func(rows *sql.Rows) error {
		var session, blocker, ms int
		var kind sql.NullString
		if err := rows.Scan(&session, &blocker, &ms, &kind); err != nil {
			return err
		}
		n++
		e.add(Finding{Check: "locks", Status: Warning,
			Found:  fmt.Sprintf("session %d has waited for session %d for %v (%s)", session, blocker, round(time.Duration(ms)*time.Millisecond), kind.String),
			Remedy: fmt.Sprintf("a transaction that changed messages (SendTx, AckTx or SQL) might be open: end it soon after the change; KILL %d ends a session without an owner", blocker)})
		return nil
	}) && n == 0 {
		e.ok("locks", "no session has waited for a lock for longer than %v", e.Wait)
	}
}
