package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
)

// Connections is the connection limit of each system on PostgreSQL, which is more than any system
// needs.
const Connections = 20

// Probe marks the statements of the measurement itself, which are excluded from those of a system.
const Probe = "peers_probe"

// SQLiteDSN returns the DSN of a queue's file, with the settings of chanq's embedded package: a
// commit is on disk when it returns.
func SQLiteDSN(dir string) string {
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-65536)", "temp_store(MEMORY)",
	}}
	file := (&url.URL{Path: SQLiteFile(dir)}).EscapedPath()
	return (&url.URL{Scheme: "file", Opaque: file, RawQuery: settings.Encode()}).String()
}

// SQLiteFile returns the path of a queue's file.
func SQLiteFile(dir string) string { return filepath.Join(dir, "queue.db") }

// CheckSQLite refuses a database that does not write through to disk.
func CheckSQLite(ctx context.Context, db *sql.DB) error {
	var mode string
	var synchronous int
	err := errors.Join(
		db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode),
		db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous))
	if err == nil && (mode != "wal" || synchronous != 2) {
		err = fmt.Errorf("SQLite is in mode %s with synchronous=%d: wanted wal, 2 (FULL)", mode, synchronous)
	}
	return err
}

// LeftPostgres counts the rows of the given tables, and the bytes of the database except those of
// PostgreSQL and the driver.
func LeftPostgres(ctx context.Context, db *sql.DB, tables ...string) (Left, error) {
	return left(ctx, db, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint AS `+Probe+`
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')`, tables)
}

// LeftSQLite counts the rows of the given tables and the bytes of the file.
func LeftSQLite(ctx context.Context, db *sql.DB, tables ...string) (Left, error) {
	return left(ctx, db, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`, tables)
}

func left(ctx context.Context, db *sql.DB, size string, tables []string) (l Left, err error) {
	for _, table := range tables {
		var rows int64
		if err := db.QueryRowContext(ctx, "SELECT count(*) AS "+Probe+" FROM "+table).Scan(&rows); err != nil {
			return l, err
		}
		l.Rows += rows
	}
	return l, db.QueryRowContext(ctx, size).Scan(&l.Bytes)
}
