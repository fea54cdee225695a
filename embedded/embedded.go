// Package embedded opens SQLite databases tuned for queues. The driver is
// modernc.org/sqlite: pure Go, nothing to install.
package embedded

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// busyTimeout is how long a writer waits for another one.
const busyTimeout = 10 * time.Second

// memory numbers the databases in memory, so that each Open has its own.
var memory atomic.Int64

// Open opens, or creates, the SQLite database at path; several processes may
// share the file. Path ":memory:" is a database in memory that lives until the
// *sql.DB is closed.
//
// The file is in write-ahead-log mode, so that readers and the writer do not
// wait for each other; a commit is on disk when it returns (synchronous=FULL).
// Transactions take the write lock when they begin, also those that only read, and
// wait up to 10 s for it; what takes longer fails as SQLITE_BUSY, as does a
// goroutine that holds a transaction and writes outside of it. Within this process
// writers take turns in the order of asking, instead of polling for the lock as
// SQLite does between processes.
//
// The tables of the application may be in the same file, which is what SendTx and
// AckTx of chanq need. Close the *sql.DB after the producers and consumers that
// use it have ended.
func Open(path string) (*sql.DB, error) {
	c, err := Connector(path)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(4) // each keeps a page cache
	if err := db.Ping(); err != nil {
		db.Close()
		return nil, fmt.Errorf("chanq: embedded: open %s: %w", path, err)
	}
	return db, nil
}

// Connector is Open for programs that wrap drivers, for tracing say: give the
// wrapped connector to sql.OpenDB. A wrapper must pass Close and Driver on.
func Connector(path string) (driver.Connector, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("chanq: embedded: path %q is neither a file nor \":memory:\"", path)
	}
	busy := fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())
	pragmas := url.Values{"_txlock": {"immediate"}, "_pragma": {
		busy, "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-65536)", "temp_store(MEMORY)",
	}}
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: pragmas.Encode()}).String()
	if path == ":memory:" {
		pragmas["_pragma"] = []string{busy, "cache_size(-65536)", "temp_store(MEMORY)"}
		pragmas["vfs"] = []string{"memdb"}
		name = fmt.Sprintf("file:/chanq-%d?%s", memory.Add(1), pragmas.Encode())
	}
	c, err := newConnector(name, path == ":memory:")
	if err != nil {
		return nil, fmt.Errorf("chanq: embedded: open %s: %w", path, err)
	}
	return c, nil
}
