package measure

import (
	"context"
	"database/sql"
	"errors"
	"os"
)

// Footprint is the size of the tables of a queue, the dead part of it, and server counters since
// the server started.
type Footprint struct {
	TableBytes int64 `json:"table_bytes,omitempty"` // SQLite: the whole file
	IndexBytes int64 `json:"index_bytes,omitempty"`
	LogBytes   int64 `json:"log_bytes,omitempty"` // size of SQLite's write-ahead log file
	DeadRows   int64 `json:"dead_rows,omitempty"` // as counted by the server
	WAL        int64 `json:"wal_bytes,omitempty"` // PostgreSQL's whole log, including checkpoints and vacuum
	Updates    int64 `json:"updates,omitempty"`   // of rows
	HotUpdates int64 `json:"hot_updates,omitempty"`
}

// FootprintPostgres returns the footprint of all tables of a schema, with their indexes.
func FootprintPostgres(ctx context.Context, db *sql.DB, schema string) (f Footprint, err error) {
	return f, db.QueryRowContext(ctx, `SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint,
  pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
  coalesce(sum(s.n_dead_tup), 0)::bigint, coalesce(sum(s.n_tup_upd), 0)::bigint, coalesce(sum(s.n_tup_hot_upd), 0)::bigint
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE n.nspname = $1 AND c.relkind = 'r'`, schema).
		Scan(&f.TableBytes, &f.IndexBytes, &f.WAL, &f.DeadRows, &f.Updates, &f.HotUpdates)
}

// FootprintSQLite returns the footprint of a file.
func FootprintSQLite(path string) (f Footprint) {
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	return Footprint{TableBytes: size(path), LogBytes: size(path + "-wal")}
}

// HoldSnapshot opens a transaction that reads once and then stays open, like a report or a
// forgotten BEGIN. Rows that are deleted after its start cannot be cleaned up until release, which
// also closes db.
func HoldSnapshot(ctx context.Context, db *sql.DB, isolation sql.IsolationLevel, read string) (release func() error, err error) {
	ctx = context.WithoutCancel(ctx)
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation, ReadOnly: isolation == sql.LevelRepeatableRead})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	release = func() error {
		_ = tx.Rollback() // it wrote nothing
		return db.Close()
	}
	var n int64
	if err := tx.QueryRowContext(ctx, read).Scan(&n); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// HoldStatement is HoldSnapshot with a statement that is not read to its end, for SQLite, where
// chanq's transactions take the write lock.
func HoldStatement(ctx context.Context, db *sql.DB, read string) (release func() error, err error) {
	rows, err := db.QueryContext(context.WithoutCancel(ctx), read)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	release = func() error { return errors.Join(rows.Close(), db.Close()) }
	if !rows.Next() {
		return nil, errors.Join(errors.New("nothing to read: the backlog is empty"), rows.Err(), release())
	}
	return release, nil
}
