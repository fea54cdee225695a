package table_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// stranger is an unknown driver. It answers the statements in answers, with one row per result set, and refuses others.
type stranger struct {
	answers map[string][]string
	err     error // of all other statements
	asked   []string
}

func (s *stranger) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *stranger) Driver() driver.Driver                        { return s }
func (s *stranger) Open(string) (driver.Conn, error)             { return s, nil }
func (s *stranger) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *stranger) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (s *stranger) Close() error                                 { return nil }

func (s *stranger) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	s.asked = append(s.asked, text)
	if sets, ok := s.answers[text]; ok {
		return &answer{sets: sets}, nil
	}
	return nil, s.err
}

type answer struct {
	sets []string
	read bool
}

func (a *answer) Columns() []string      { return []string{"answer"} }
func (a *answer) Close() error           { return nil }
func (a *answer) HasNextResultSet() bool { return len(a.sets) > 1 }
func (a *answer) NextResultSet() error {
	if !a.HasNextResultSet() {
		return io.EOF
	}
	a.sets, a.read = a.sets[1:], false
	return nil
}
func (a *answer) Next(v []driver.Value) error {
	if a.read {
		return io.EOF
	}
	a.read, v[0] = true, a.sets[0]
	return nil
}

const (
	askPostgres  = "SELECT version()"
	askSQLite    = "SELECT sqlite_version()"
	askSQLServer = "SELECT @@VERSION; SELECT 1"
	askAnything  = "SELECT 1"
)

func TestTheDatabaseOfAnUnknownDriverIsAskedForItsVersion(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string][]string
		want    sqlbatch.Dialect
		words   []string
	}{
		"PostgreSQL": {map[string][]string{askPostgres: {"PostgreSQL 15.6 on x86_64-pc-linux-gnu, compiled by gcc"}},
			postgres.Dialect, nil},
		"SQLite": {map[string][]string{askSQLite: {"3.40.1"}}, sqlite.Dialect, nil},
		"SQL Server": {map[string][]string{askSQLServer: {"Microsoft SQL Server 2022 (RTM-CU14)", "1"}},
			sqlserver.Dialect, nil},
		"Azure": {map[string][]string{askSQLServer: {"Microsoft SQL Azure (RTM) - 12.0.2000.8", "1"}},
			sqlserver.Dialect, nil},
		"CockroachDB": {map[string][]string{askPostgres: {"CockroachDB CCL v24.1.0"}, askAnything: {"1"}}, nil,
			[]string{"driver table_test.stranger", "neither SQL Server, PostgreSQL nor SQLite",
				`"CockroachDB CCL v24.1.0"`, `set Config.Dialect to "sqlserver", "postgres" or "sqlite"`}},
		"MySQL": {map[string][]string{askPostgres: {"8.0.36"}, askSQLServer: {"8.0.36", "1"}, askAnything: {"1"}}, nil,
			[]string{`its version: "8.0.36", "8.0.36"`, "set Config.Dialect"}},
		"silence": {map[string][]string{askAnything: {"1"}}, nil, []string{"its version: none", "set Config.Dialect"}},
		"one result set": {map[string][]string{askSQLServer: {"Microsoft SQL Server 2022 (RTM-CU14)"}}, nil,
			[]string{"driver table_test.stranger", "first result set", "driver.RowsNextResultSet"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stranger{answers: c.answers, err: errors.New("syntax error")}
			db := sql.OpenDB(s)
			defer db.Close()
			found, err := table.DialectOf(t.Context(), db, "")
			require.Equal(t, c.want, found)
			if c.words == nil {
				require.NoError(t, err)
			}
			for _, words := range c.words {
				require.ErrorContains(t, err, words)
			}
			require.False(t, session.Unconnected(err))
			require.Zero(t, db.Stats().InUse)
			if name == "PostgreSQL" {
				require.Equal(t, []string{askPostgres}, s.asked, "no statement fails, because PostgreSQL would log it")
			}
		})
	}
}

func TestADatabaseThatDoesNotAnswerIsNotAnotherOne(t *testing.T) {
	s := &stranger{answers: map[string][]string{}, err: io.ErrUnexpectedEOF}
	db := sql.OpenDB(s)
	defer db.Close()
	_, err := table.DialectOf(t.Context(), db, "")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, session.Unconnected(err), "the connection broke")
	require.NotContains(t, err.Error(), "neither")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = table.DialectOf(canceled, db, "")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, session.Unconnected(err))
}

func TestAGivenDialectIsNotAskedFor(t *testing.T) {
	s := &stranger{}
	db := sql.OpenDB(s)
	defer db.Close()
	for _, want := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
		found, err := table.DialectOf(t.Context(), db, want.Name())
		require.NoError(t, err)
		require.Equal(t, want, found)
	}
	_, err := table.DialectOf(t.Context(), db, "oracle")
	require.EqualError(t, err, `Config.Dialect is "oracle": must be "sqlserver", "postgres" or "sqlite"`)
	require.Empty(t, s.asked)
}
