package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"

	"github.com/chanq/chanq/bench/internal/peer"
)

// server is the PostgreSQL server on which each phase has a separate database.
type server struct {
	dsn     string
	db      *sql.DB
	about   string
	durable bool
	counts  error // the reason why it cannot count statements; nil if it can
}

func connect(ctx context.Context, dsn string) (*server, error) {
	db, err := openPostgres(dsn)
	if err != nil {
		return nil, err
	}
	s := &server{dsn: dsn, db: db}
	var version, fsync, commit, pages string
	err = db.QueryRowContext(ctx, `SELECT current_setting('server_version'), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('full_page_writes')`).Scan(&version, &fsync, &commit, &pages)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("-dsn: %w", err), db.Close())
	}
	s.about = fmt.Sprintf("PostgreSQL %s, fsync=%s synchronous_commit=%s full_page_writes=%s", version, fsync, commit, pages)
	s.durable = fsync == "on" && commit == "on" && pages == "on"
	if _, err := db.ExecContext(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		s.counts = err
	} else {
		var n int
		s.counts = db.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_statements").Scan(&n)
	}
	return s, nil
}

func (s *server) close() error { return s.db.Close() }

// database is the store of one phase, or of enqueue and drain.
type database struct {
	server    *server
	name, dsn string
	oid       int64
}

func (s *server) create(ctx context.Context) (*database, error) {
	d := &database{server: s, name: fmt.Sprintf("chanq_peers_%08x", rand.Uint32())}
	var err error
	if d.dsn, err = withDatabase(s.dsn, d.name); err != nil {
		return nil, err
	}
	if _, err := s.db.ExecContext(ctx, "CREATE DATABASE "+d.name); err != nil {
		return nil, err
	}
	if err := s.db.QueryRowContext(ctx, "SELECT oid FROM pg_database WHERE datname = $1", d.name).Scan(&d.oid); err != nil {
		return nil, errors.Join(err, d.drop(context.WithoutCancel(ctx)))
	}
	return d, nil
}

func (d *database) drop(ctx context.Context) error {
	_, err := d.server.db.ExecContext(ctx, "DROP DATABASE "+d.name+" WITH (FORCE)")
	return err
}

// prepare brings the database into the state that autovacuum would produce, so that systems are
// compared in the same state, and starts counting.
func (d *database) prepare(ctx context.Context) error {
	db, err := openPostgres(d.dsn)
	if err != nil {
		return err
	}
	for _, text := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	if err := db.Close(); err != nil || d.server.counts != nil {
		return err
	}
	_, err = d.server.db.ExecContext(ctx, "SELECT pg_stat_statements_reset(0, $1, 0)", d.oid)
	return err
}

// count returns the number of statements that the server executed since prepare, including BEGIN
// and COMMIT, and the bytes that they wrote to its log.
func (d *database) count(ctx context.Context, o *peer.Outcome) error {
	if d.server.counts != nil {
		return nil
	}
	return d.server.db.QueryRowContext(ctx, `SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(wal_bytes), 0)::bigint FROM pg_stat_statements
		WHERE dbid = $1 AND query NOT LIKE '%`+peer.Probe+`%'`, d.oid).Scan(&o.Statements, &o.WAL)
}

// withDatabase returns the DSN, a URL or keywords, of another database on its server.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // the last keyword applies
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("-dsn: %w", errors.Unwrap(err)) // without the URL, which may contain a password
	}
	u.Path = "/" + name
	return u.String(), nil
}
