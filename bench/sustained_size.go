package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// footprint reads sizes from the database. SQL Server has only sizes, for logins with the
// permission. The emulator has none, because it has no pages.
func (s *store) footprint(ctx context.Context) (f measure.Footprint, err error) {
	switch s.dialect {
	case postgres.Dialect:
		return measure.FootprintPostgres(ctx, s.db, s.place.Schema)
	case sqlite.Dialect:
		return measure.FootprintSQLite(s.place.File), nil
	}
	const page = 8192
	err = s.db.QueryRowContext(ctx, `SELECT SUM(CASE WHEN index_id < 2 THEN used_page_count ELSE 0 END),
SUM(CASE WHEN index_id < 2 THEN 0 ELSE used_page_count END) FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID(@p1)`,
		s.liveTable()).Scan(&f.TableBytes, &f.IndexBytes)
	if err != nil {
		return measure.Footprint{}, nil
	}
	f.TableBytes, f.IndexBytes = f.TableBytes*page, f.IndexBytes*page
	return f, nil
}

// holdSnapshot opens a snapshot on a connection outside of the queue.
func (s *store) holdSnapshot(ctx context.Context) (release func() error, err error) {
	inner, err := s.engine.connector(s.place, &measure.Counter{})
	if err != nil {
		return nil, err
	}
	db, count := sql.OpenDB(inner), "SELECT count(*) FROM "+s.liveTable()
	switch s.dialect {
	case sqlite.Dialect:
		return measure.HoldStatement(ctx, db, "SELECT id FROM "+s.liveTable())
	case sqlserver.Dialect:
		return measure.HoldSnapshot(ctx, db, sql.LevelSnapshot, count)
	}
	return measure.HoldSnapshot(ctx, db, sql.LevelRepeatableRead, count)
}

// holdSender opens a transaction that has sent a message.
func (s *store) holdSender(ctx context.Context) (release func() error, err error) {
	queue, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := s.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	var m chanq.Message[[]byte]
	if s.place.Slots > 0 {
		m.Key = "held"
	}
	if _, err := queue.SendTx(ctx, tx, m); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx.Rollback, nil
}

// connections returns the number of connections of all processes that use the queue, or 0 if
// unknown.
func (s *store) connections(ctx context.Context) (n int) {
	if s.place.Engine == postgresEngine.name {
		_ = s.db.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", s.place.Schema).Scan(&n)
	}
	return n
}
