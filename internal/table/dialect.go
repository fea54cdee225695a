package table

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// DialectOf returns the given dialect. If that is nil it returns the one of the database, by the package of its driver, so that no
// driver is imported here.
func DialectOf(db *sql.DB, given sqlbatch.Dialect) (sqlbatch.Dialect, error) {
	switch {
	case db == nil:
		return nil, errors.New("db is nil")
	case !base.IsNil(given):
		return given, nil
	}
	t := reflect.TypeOf(db.Driver())
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch path := t.PkgPath(); {
	case path == "github.com/microsoft/go-mssqldb", strings.HasPrefix(path, "github.com/microsoft/go-mssqldb/"):
		return sqlserver.Dialect, nil
	case strings.HasPrefix(path, "github.com/jackc/pgx/") && strings.HasSuffix(path, "/stdlib"), path == "github.com/lib/pq":
		return postgres.Dialect, nil
	case path == "modernc.org/sqlite", path == "github.com/chanq/chanq/embedded":
		return sqlite.Dialect, nil
	default:
		return nil, fmt.Errorf("unknown driver %s (%s): set Config.Dialect to sqlserver.Dialect, postgres.Dialect or sqlite.Dialect", t, path)
	}
}
