package chanqadmin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// Lock is a lock that keeps programs from using a queue.
type Lock struct {
	Session int64  // of the server; on SQLite the process, 0 if it is not known
	Program string // that has the lock, "" if it is not known
	// For is how long the transaction has been open, or how long another session has waited for it. On SQLite it is for how long Locks has seen
	// the lock. 0: not known.
	For time.Duration
	// File: it is the write lock of a SQLite file, of all its queues. Reads are not locked.
	File bool
	// Reads are locked as well.
	Reads bool
	// End is what an administrator can run to end it, "" if there is nothing.
	End string
}

// lockTried is how long Locks waits for the write lock of a SQLite file.
const lockTried = time.Second

// Locks returns locks on whole tables of the queue, which other sessions hold: claims and sends wait for them. If they wait behind a session
// that waits itself, it returns the last one of that chain, on SQL Server the next one. On SQLite it is the write lock of the file, if one transaction has held it for 1 s. It costs one round trip, and reads no
// table of the queue.
//
// PostgreSQL shows For only to members of pg_monitor, and SQL Server shows locks only to logins with VIEW SERVER STATE.
func (q *Queue) Locks(ctx context.Context) ([]Lock, error) {
	list, err := locks(ctx, q.db, q.dialect, namesOf(q.Name(), q.cfg), q.ordered())
	return list, q.fail("locks", err)
}

// Locks is Queue.Locks for a queue that cannot be opened, because the shared tables of all queues are locked.
func Locks(ctx context.Context, db *sql.DB, queue string, cfg chanq.Config) ([]Lock, error) {
	d, err := table.DialectOf(db, string(cfg.Dialect))
	if err == nil {
		err = sqlbatch.CheckNames(namesOf(queue, cfg))
	}
	if err != nil {
		return nil, fmt.Errorf("chanq: locks %s: %w", queue, err)
	}
	return locks(ctx, db, d, namesOf(queue, cfg), cfg.Kind == chanq.KindOrdered)
}

// A session that waits for a lock on a whole table makes those behind it wait, too. It is reported with the session at the end of the chain of
// waits, which is the one to end, and with the time since its own statement began. SQL Server has no list of all sessions of such a chain: there
// the session of the next step is reported, and sessions that wait for nothing come first.
//
// The statement for SQL Server reads the names of tables WITH (NOLOCK): it would otherwise wait for a migration, which it is to find.
const (
	locksPostgres = `WITH RECURSIVE chain (pid, began, reads) AS (
  SELECT l.pid, CASE WHEN l.granted THEN a.xact_start ELSE a.query_start END, l.mode = 'AccessExclusiveLock'
  FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
  WHERE l.locktype = 'relation' AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND a.pid <> pg_backend_pid()
    AND a.backend_type IS DISTINCT FROM 'autovacuum worker' -- it ends by itself when a program waits for it
    AND l.relation IN (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
      WHERE n.nspname = $1::text AND c.relname IN ($2::text, $2::text || '__dead', $2::text || '__done',
        'chanq__queues', 'chanq__consumers', 'chanq__samples', CASE WHEN $3::boolean THEN 'chanq__slots' END))
  UNION
  SELECT b.pid, c.began, c.reads FROM chain AS c CROSS JOIN LATERAL unnest(pg_blocking_pids(c.pid)) AS b (pid)
)
SELECT a.pid, coalesce(a.application_name, ''), coalesce((extract(epoch FROM clock_timestamp() - greatest(a.xact_start, c.began)) * 1000)::bigint, 0), c.reads
FROM chain AS c JOIN pg_stat_activity AS a ON a.pid = c.pid
WHERE cardinality(pg_blocking_pids(a.pid)) = 0
ORDER BY greatest(a.xact_start, c.began), a.pid LIMIT 5`

	locksSQLServer = `SELECT TOP (5) s.session_id, s.program_name, COALESCE(w.ms, DATEDIFF_BIG(millisecond, t.transaction_begin_time, SYSDATETIME())) AS ms,
  CONVERT(bit, CASE WHEN l.request_mode IN ('X', 'Sch-M') THEN 1 ELSE 0 END) AS blocks
FROM sys.dm_tran_locks AS l
INNER JOIN sys.objects AS o WITH (NOLOCK) ON o.object_id = l.resource_associated_entity_id
CROSS APPLY (SELECT MAX(r.blocking_session_id) AS blocker, MAX(r.wait_time) AS ms FROM sys.dm_exec_requests AS r WHERE r.session_id = l.request_session_id AND r.blocking_session_id > 0 AND r.blocking_session_id <> r.session_id) AS w
INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = COALESCE(w.blocker, l.request_session_id)
INNER JOIN sys.dm_tran_session_transactions AS st ON st.session_id = s.session_id
INNER JOIN sys.dm_tran_active_transactions AS t ON t.transaction_id = st.transaction_id
WHERE l.resource_type = 'OBJECT' AND l.resource_database_id = DB_ID() AND l.request_status IN ('GRANT', 'WAIT', 'CONVERT')
  AND l.request_mode IN ('S', 'SIX', 'X', 'Sch-M')
  AND o.schema_id = SCHEMA_ID(@schema) AND o.name IN (@live, @live + N'__dead', @live + N'__done', N'chanq__queues', N'chanq__consumers', N'chanq__samples',
    CASE WHEN @ordered = 1 THEN N'chanq__slots' END) AND s.session_id <> @@SPID
ORDER BY CASE WHEN EXISTS (SELECT 1 FROM sys.dm_exec_requests AS b WHERE b.session_id = s.session_id AND b.blocking_session_id > 0 AND b.blocking_session_id <> b.session_id)
  THEN 1 ELSE 0 END, t.transaction_begin_time`
)

func locks(ctx context.Context, db *sql.DB, d sqlbatch.Dialect, n sqlbatch.Names, ordered bool) (list []Lock, err error) {
	schema, live := n.Schema, "chanq_"+n.Queue
	if schema == "" {
		schema = d.Traits().Schema
	}
	st := sqlbatch.Statement{Text: locksPostgres, Args: []any{schema, live, ordered}}
	end := "SELECT pg_terminate_backend(%d)"
	switch d.Name() {
	case "sqlite":
		return fileLock(ctx, db, d)
	case "sqlserver":
		st = sqlbatch.Statement{Text: locksSQLServer, Args: []any{sql.Named("schema", schema), sql.Named("live", live), sql.Named("ordered", ordered)}}
		end = "KILL %d"
	}
	s := session.OpenOnce(db, d)
	defer s.Close()
	err = s.Run(ctx, st, func(rows *sql.Rows) error {
		var l Lock
		var program sql.NullString
		var ms int64
		err := rows.Scan(&l.Session, &program, &ms, &l.Reads)
		l.Program, l.For, l.End = program.String, time.Duration(ms)*time.Millisecond, fmt.Sprintf(end, l.Session)
		list = append(list, l)
		return err
	})
	return list, err
}

// fileLock takes and releases the write lock of a file. It finds the lock of another transaction only if nothing is committed while it
// waits: many short transactions, which together use the file all the time, are no fault. SQLite itself must not wait, because some drivers
// do not end that when a context ends.
func fileLock(ctx context.Context, db *sql.DB, d sqlbatch.Dialect) (_ []Lock, err error) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, lockTried)
	defer cancel()
	conn, err := db.Conn(within)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	over := context.WithoutCancel(ctx)
	ask := func(text string, into any) error { return conn.QueryRowContext(within, text).Scan(into) }
	var timeout, before, after int64
	if err := ask("PRAGMA busy_timeout", &timeout); err != nil {
		return nil, err
	}
	defer func() { // whatever the next statement returns: it may have run
		_, failed := conn.ExecContext(over, fmt.Sprintf("PRAGMA busy_timeout = %d", timeout))
		err = errors.Join(err, failed)
	}()
	if err := ask("PRAGMA busy_timeout = 0", &after); err != nil {
		return nil, err
	}
	found := func(reads bool) []Lock {
		l := Lock{File: true, Reads: reads, For: time.Since(began)}
		var file sql.NullString
		if !reads && conn.QueryRowContext(ctx, "SELECT max(file) FROM pragma_database_list WHERE name = 'main'").Scan(&file) == nil {
			l.Session, l.Program = writerOf(file.String)
		}
		return []Lock{l}
	}
	// waits reports that it was the lock that made a statement fail, and not the end of ctx.
	waits := func(err error) bool {
		return ctx.Err() == nil && (within.Err() != nil || session.Classify(d, err) == sqlbatch.RolledBack)
	}
	for known := false; ; batch.Sleep(within, lockTried/50) {
		err := error(nil)
		if !known { // without a write-ahead log a reader waits as well
			err = ask("PRAGMA data_version", &before)
			known = err == nil
		}
		if known {
			_, err = conn.ExecContext(within, "BEGIN IMMEDIATE")
			_, ended := conn.ExecContext(over, "ROLLBACK") // even after an error: a driver may return one for a BEGIN that was run
			if err == nil {
				return nil, ended
			}
		}
		switch {
		case !waits(err):
			return nil, err
		case within.Err() == nil:
			continue
		case !known:
			return found(true), nil
		}
		switch err := conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&after); {
		case err != nil && waits(err):
			return found(true), nil
		case err != nil || after != before:
			return nil, err
		}
		return found(false), nil
	}
}
