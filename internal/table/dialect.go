package table

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

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

// DialectOf returns the dialect with the given name. If the name is "", it returns that of the driver, by its package.
func DialectOf(db *sql.DB, given string) (sqlbatch.Dialect, error) {
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
		return nil, fmt.Errorf("chanq does not know the driver %s (%s): set Config.Dialect to the database behind it, "+
			"%q, %q or %q", t, path, sqlserver.Dialect.Name(), postgres.Dialect.Name(), sqlite.Dialect.Name())
	}
}
