package table

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// DialectNamed returns the dialect with this name. field is the name's field in the error.
func DialectNamed(field, name string) (sqlbatch.Dialect, error) {
	for _, d := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
		if d.Name() == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("%s is %.63q: must be %q, %q or %q", field, name, sqlserver.Dialect.Name(),
		postgres.Dialect.Name(), sqlite.Dialect.Name())
}

// DialectOf returns the dialect with the given name. If the name is "", it returns the dialect of the database: by the
// package of its driver or, if that is unknown, by the database's version. A session.NotRunError means that the
// database did not answer.
func DialectOf(ctx context.Context, db *sql.DB, given string) (sqlbatch.Dialect, error) {
	switch {
	case db == nil:
		return nil, errors.New("db is nil")
	case given != "":
		return DialectNamed("Config.Dialect", given)
	}
	t := reflect.TypeOf(db.Driver())
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch path := t.PkgPath(); { // no driver is imported here
	case path == "github.com/microsoft/go-mssqldb", strings.HasPrefix(path, "github.com/microsoft/go-mssqldb/"):
		return sqlserver.Dialect, nil
	case strings.HasPrefix(path, "github.com/jackc/pgx/") && strings.HasSuffix(path, "/stdlib"),
		path == "github.com/lib/pq":
		return postgres.Dialect, nil
	case path == "modernc.org/sqlite", path == "github.com/chanq/chanq/embedded":
		return sqlite.Dialect, nil
	default:
		d, err := askDialect(ctx, db)
		if err != nil {
			err = fmt.Errorf("driver %s (%s): %w", t, path, err)
		}
		return d, err
	}
}

// versions are the queries by which a database is recognized, and the prefixes of the answers. PostgreSQL, which logs
// each failed statement, understands the first one.
var versions = []struct {
	dialect        sqlbatch.Dialect
	text, expected string
}{
	{postgres.Dialect, "SELECT version()", "PostgreSQL "},
	{sqlite.Dialect, "SELECT sqlite_version()", "3."},
	{sqlserver.Dialect, "SELECT @@VERSION; SELECT 1", "Microsoft SQL "},
}

// askDialect queries the version of the database. A failed query might mean that the database does not know it, or that
// the connection is broken: SELECT 1 shows which.
func askDialect(ctx context.Context, db *sql.DB) (sqlbatch.Dialect, error) {
	conn, err := session.Connect(ctx, db)
	if err != nil {
		return nil, &session.NotRunError{Err: fmt.Errorf("connect: %w", err), Unconnected: true}
	}
	defer conn.Close()
	var answers []string
	for _, v := range versions {
		answer, sets, err := ask(ctx, conn, v.text)
		switch {
		case err != nil:
			continue
		case !strings.HasPrefix(answer, v.expected):
			answers = append(answers, fmt.Sprintf("%.80q", answer))
		case v.dialect == sqlserver.Dialect && sets < 2:
			return nil, errors.New("it returns the first result set of a batch only, and hides errors that follow: " +
				"its rows must have the methods of database/sql/driver.RowsNextResultSet")
		default:
			return v.dialect, nil
		}
	}
	if _, _, err := ask(ctx, conn, "SELECT 1"); err != nil {
		return nil, &session.NotRunError{Err: err, Unconnected: true}
	}
	return nil, fmt.Errorf("unknown driver, and the database is neither SQL Server, PostgreSQL nor SQLite (its "+
		"version: %s): if it accepts the SQL of one of them, set Config.Dialect to %q, %q or %q",
		cmp.Or(strings.Join(answers, ", "), "none"), sqlserver.Dialect.Name(), postgres.Dialect.Name(),
		sqlite.Dialect.Name())
}

// ask returns the value of the first result set, and the number of result sets. It reads all of them, because any might
// have an error.
func ask(ctx context.Context, conn *sql.Conn, text string) (answer string, sets int, err error) {
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return "", 0, err
	}
	defer rows.Close()
	for sets = 1; err == nil; sets++ {
		for rows.Next() && err == nil {
			if sets == 1 {
				err = rows.Scan(&answer)
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	return answer, sets, errors.Join(err, rows.Err())
}
