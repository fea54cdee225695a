package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// footprint asks the database; the stand-in for SQL Server does not tell.
func (s *store) footprint(ctx context.Context) (f measure.Footprint, err error) {
	switch s.dialect {
	case postgres.Dialect:
		err = s.db.QueryRowContext(ctx, `SELECT pg_table_size(c), pg_indexes_size(c), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
  coalesce((SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = c), 0)
FROM (SELECT $1::regclass) AS t (c)`, s.liveTable()).Scan(&f.TableBytes, &f.IndexBytes, &f.LogBytes, &f.DeadRows)
	case sqlite.Dialect:
		f.TableBytes, f.LogBytes = fileSize(s.place.File), fileSize(s.place.File+"-wal")
	}
	return f, err
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// holdAfter is when -hold opens its snapshot.
const holdAfter = 10 * time.Second

// snapshot is a transaction that reads nothing more, as a report or a forgotten
// BEGIN leaves it: what is deleted after it began cannot be cleaned up.
type snapshot struct {
	db *sql.DB
	tx *sql.Tx
}

// holdSnapshot opens one on a connection apart from the queue's.
func (s *store) holdSnapshot(ctx context.Context) (*snapshot, error) {
	ctx = context.WithoutCancel(ctx)
	inner, err := s.engine.connector(s.place)
	if err != nil {
		return nil, err
	}
	h := &snapshot{db: sql.OpenDB(inner)}
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	switch s.dialect {
	case sqlite.Dialect:
		// A transaction of embedded takes the write lock: a statement that is not read
		// to its end holds its snapshot without.
		conn, err := h.db.Conn(ctx)
		if err != nil {
			return nil, errors.Join(err, h.db.Close())
		}
		rows, err := conn.QueryContext(ctx, "SELECT id FROM "+s.liveTable())
		if err == nil && !rows.Next() {
			err = errors.Join(errors.New("nothing to read for -hold: the backlog is empty"), rows.Err())
		}
		return h, err
	case sqlserver.Dialect:
		options.Isolation = sql.LevelSnapshot
	}
	if h.tx, err = h.db.BeginTx(ctx, options); err == nil {
		var n int64
		err = h.tx.QueryRowContext(ctx, "SELECT count(*) FROM "+s.liveTable()).Scan(&n)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("-hold: %w", err), h.release())
	}
	return h, nil
}

func (h *snapshot) release() error {
	if h == nil {
		return nil
	}
	if h.tx != nil {
		_ = h.tx.Rollback()
	}
	return h.db.Close()
}
