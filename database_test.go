package chanq_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// Statements for SQLite read numbers from blobs, by way of the encoding of the file:
// in any but UTF-8 they would store every body empty, and say nothing.
func TestAFileInUTF16IsRefused(t *testing.T) {
	for _, encoding := range []string{"UTF-16le", "UTF-16be", "UTF-16"} {
		db, err := embedded.Open(filepath.Join(t.TempDir(), "application.db"))
		require.NoError(t, err)
		defer db.Close()
		for _, text := range []string{"PRAGMA encoding = '" + encoding + "'", "CREATE TABLE application (name TEXT)"} {
			_, err = db.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		refused := func(err error) {
			t.Helper()
			require.ErrorContains(t, err, "PRAGMA encoding is UTF-16")
			require.ErrorContains(t, err, "made with PRAGMA encoding = 'UTF-8'")
		}
		refused(chanq.Migrate(t.Context(), db, "orders", chanq.Config{}))
		var tables int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master").Scan(&tables))
		require.Equal(t, 1, tables, "nothing was made")

		texts, err := chanq.Schema(sqlite.Dialect, "orders", chanq.Config{})
		require.NoError(t, err)
		for _, text := range texts {
			_, err = db.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		_, err = chanq.Open[string](t.Context(), db, "orders", chanq.Config{Durability: chanq.DurabilityAsIs})
		refused(err)
	}
}

func TestSchemasWhoseNamesAScriptWouldChangeAreRefused(t *testing.T) {
	for _, d := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
		_, err := chanq.Schema(d, "orders", chanq.Config{Schema: "a\nGO\nb"})
		requireWords(t, err, "schema name", "control characters")
	}
	_, err := chanq.Schema(sqlserver.Dialect, "orders", chanq.Config{Schema: "a$(b)"})
	requireWords(t, err, "schema name", "sqlcmd")
	_, err = chanq.Schema(postgres.Dialect, "orders", chanq.Config{Schema: "a$(b)"})
	require.NoError(t, err)
}

// Its remedy is another database: a session's encoding does not matter.
func TestADatabaseThatCannotHoldAllTextIsRefused(t *testing.T) {
	db := pgtest.Encoding(t, "LATIN1")
	_, err := chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
	require.ErrorIs(t, err, chanq.ErrNoSchema)
	texts, err := chanq.Schema(postgres.Dialect, "orders", chanq.Config{})
	require.NoError(t, err)
	for _, text := range texts {
		_, err = db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	_, err = chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
	requireWords(t, err, "LATIN1", "ENCODING 'UTF8'", "cannot be changed")
	require.NotContains(t, err.Error(), "client_encoding")
}
