package guarantees_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/internal/prove/guarantees"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

var onSQLite = guarantees.Engine{
	Name:    "sqlite",
	Dialect: sqlite.Dialect,
	Create:  func(t *testing.T) string { return filepath.Join(t.TempDir(), "queue.db") },
	Connect: embedded.Connector,
	Shared:  true,
	Copy: func(t *testing.T, path string) string {
		db, err := embedded.Open(path)
		require.NoError(t, err)
		defer db.Close()
		copied := filepath.Join(t.TempDir(), "copy.db")
		_, err = db.ExecContext(t.Context(), `VACUUM INTO ?1`, copied)
		require.NoError(t, err)
		return copied
	},
	Errors: map[sqlbatch.Class]error{
		sqlbatch.Unknown:    errors.New("disk went away"),
		sqlbatch.RolledBack: code(5),    // SQLITE_BUSY
		sqlbatch.Refused:    code(13),   // SQLITE_FULL
		sqlbatch.NoSchema:   code(1),    // SQLITE_ERROR
		sqlbatch.Permanent:  code(8),    // SQLITE_READONLY
		sqlbatch.BadRow:     code(19),   // SQLITE_CONSTRAINT
		sqlbatch.Duplicate:  code(2067), // SQLITE_CONSTRAINT_UNIQUE
	},
}

// code is an error of SQLite, as its driver gives them.
type code int

func (c code) Code() int     { return int(c) }
func (c code) Error() string { return fmt.Sprintf("sqlite: code %d", int(c)) }

func TestSQLite(t *testing.T) { guarantees.Run(t, onSQLite) }

func TestMain(m *testing.M) {
	guarantees.Main(func() int {
		result := m.Run()
		if err := goleak.Find(); err != nil && result == 0 {
			fmt.Println("goroutines are left behind:", err)
			return 1
		}
		return result
	}, onSQLite, onPostgres, standInLocks, standInVersions, realServer)
}
