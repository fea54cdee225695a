package guarantees

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// sqliteFiles are the ways to open a file: embedded, and by a DSN whose PRAGMA writes the first page before any table is
// created.
var sqliteFiles = map[string]func(path string) (*sql.DB, error){
	"embedded": embedded.Open,
	"a DSN": func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	},
}

// autoVacuum returns the setting of a file, or of a database in memory: 0 is none, and 2 incremental.
func autoVacuum(t *testing.T, db *sql.DB) (mode int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA auto_vacuum").Scan(&mode))
	return mode
}

func TestANewFileIsMadeSoThatItCanShrink(t *testing.T) {
	for name, open := range sqliteFiles {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "queue.db")
			db, err := open(path)
			require.NoError(t, err)
			defer db.Close()
			var mode string
			require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
			require.Equal(t, "wal", mode)
			require.NoError(t, chanq.Migrate(t.Context(), db, "work", chanq.Config{}))
			require.Equal(t, 2, autoVacuum(t, db))
			require.NoError(t, chanq.Migrate(t.Context(), db, "other", chanq.Config{}))
			require.NoError(t, db.Close())
			db, err = open(path)
			require.NoError(t, err)
			defer db.Close()
			require.Equal(t, 2, autoVacuum(t, db), "the file has it")
			_, err = chanq.Open[string](t.Context(), db, "work", chanq.Config{})
			require.NoError(t, err)
		})
	}
}

func TestAFileThatHasTablesKeepsItsSetting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := sqliteFiles["a DSN"](path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE application (name TEXT)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for name, open := range sqliteFiles {
		db, err := open(path)
		require.NoError(t, err)
		defer db.Close()
		require.NoError(t, chanq.Migrate(t.Context(), db, "work", chanq.Config{}), name)
		require.Zero(t, autoVacuum(t, db), name)
	}
	memory, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer memory.Close()
	require.NoError(t, chanq.Migrate(t.Context(), memory, "work", chanq.Config{}))
	require.Zero(t, autoVacuum(t, memory))

	// The remedy in the documents.
	db, err = embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, text := range []string{"PRAGMA auto_vacuum = INCREMENTAL", "VACUUM"} {
		_, err = conn.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	require.Equal(t, 2, autoVacuum(t, db))
}

func TestConsumersReturnTheSpaceOfDeletedMessagesToTheFileSystem(t *testing.T) {
	t.Parallel()
	const messages, size = 200, 50_000
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := sqliteFiles["a DSN"](path)
	require.NoError(t, err)
	defer db.Close()
	count := func(pragma string) (pages int) {
		require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&pages))
		return pages
	}
	cfg := chanq.Config{Spec: chanq.Spec{RetainDead: time.Second}} // consumers clean up about once a second
	require.NoError(t, chanq.Migrate(t.Context(), db, "work", cfg))
	q := testdb.OpenOn[[]byte](t, db, "work", cfg)
	ms := make([]chanq.Message[[]byte], messages)
	for i := range ms {
		ms[i].Body = make([]byte, size)
	}
	testdb.Send(t, q, ms...)
	require.Greater(t, count("page_count"), messages*size/4096)
	c := testdb.Start(t, q, chanq.ConsumerConfig{})
	require.NoError(t, chanq.Ack(testdb.Soon(t), testdb.Take(t, c, messages)...))
	testdb.Eventually(t, "the file is shorter", func() bool { return count("page_count") < messages*size/4096/2 })
	testdb.Eventually(t, "all are returned", func() bool { return count("freelist_count") < sqlbatch.ShrinkPages })
	_, err = db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(messages*size/2))
}
