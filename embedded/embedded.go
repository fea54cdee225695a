// Package embedded opens SQLite databases with settings for queues. The driver is modernc.org/sqlite, which is pure Go and needs no
// installation.
package embedded

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// inMemory is the path of a database without a file.
const inMemory = ":memory:"

// journalLimit is the length in bytes to which the write-ahead log is truncated when it is restarted. Without long reads the log does
// not reach it.
const journalLimit = 32 << 20

// journalSuffix is the suffix of the write-ahead log's name, defined by SQLite.
const journalSuffix = "-wal"

// busyTimeout is how long a writer waits for another writer. SQLite itself waits busyTry, during which it sees no end of a context, and is
// then asked again.
const (
	busyTimeout = 10 * time.Second
	busyTry     = 250 * time.Millisecond
	busyPause   = 10 * time.Millisecond // between two tries
)

// memory numbers the databases in memory, so that each Open has its own.
var memory atomic.Int64

// Open opens the SQLite database at path, and creates the file if it does not exist. Several processes may share the file. The path
// ":memory:" is a database in memory that exists until the *sql.DB is closed.
//
// The file has a write-ahead log, so that readers and the writer do not wait for each other. A commit is on disk when it returns
// (synchronous=FULL; fullfsync, without which macOS leaves it in the cache of the disk). The file must be on a local disk. On a network
// file system (NFS, SMB) a write-ahead log is unsafe: its index is shared memory, and locks are unreliable there.
//
// A transaction takes the write lock when it begins, even if it only reads. It waits for the lock for up to 11 s and then fails with
// SQLITE_BUSY. The same applies to a write outside of the transaction by the goroutine that holds the transaction. Within a process
// writers get the lock in the order of their calls. Writers of different processes alternate by locks on two empty files, path-turn and
// path-next, which remain. On Windows, without permission to create these files, and with programs that do not use them, processes poll
// for the lock.
//
// The driver of the *sql.DB is a chanq.Notifier, so idle consumers of chanq wake when another process has sent a message. See
// chanq.Config.Notifier; chanq.NoNotifier disables it. It notifies through named pipes in the directory path-notify: one per plain
// queue, which remains, and one per ordered queue and process. That costs some microseconds per commit. Where there are no named pipes
// (on Windows, on FAT, or without permission to create them), a process with idle consumers polls SQLite every 5 ms for a commit, on its
// own connection. That takes some percent of a core.
//
// chanq.Migrate sets auto_vacuum = INCREMENTAL in a file without tables, so that consumers return the space of deleted messages to the
// file system. Call it before you create your own tables. It does not change a file with tables: run PRAGMA auto_vacuum = INCREMENTAL
// and VACUUM while no other program uses the file.
//
// Tables of the application may be in the same file: SendTx and AckTx of chanq need that. Close the *sql.DB after the producers and
// consumers that use it have ended.
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

// Files returns the names of the files that a database at path may have: the database, its write-ahead log, the index of the log, the
// locks between processes, the named pipes that exist now, and their directory. Remove them together, in this order, while no process
// uses the database.
func Files(path string) []string {
	files := []string{path}
	for _, suffix := range []string{journalSuffix, "-shm", "-journal", turnSuffix, nextSuffix} {
		files = append(files, path+suffix)
	}
	pipes, _ := os.ReadDir(path + notifySuffix) // which might not exist
	for _, pipe := range pipes {
		files = append(files, filepath.Join(path+notifySuffix, pipe.Name()))
	}
	return append(files, path+notifySuffix)
}

// Connector is Open for programs that wrap drivers, for example for tracing: pass the wrapped connector to sql.OpenDB. A wrapper must
// forward Close. If its Driver method does not return the connector's driver, set chanq.Config.Notifier to the connector's driver:
// otherwise idle consumers of other processes poll.
func Connector(path string) (driver.Connector, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("chanq: embedded: path %q is neither a file nor \":memory:\"", path)
	}
	busy := fmt.Sprintf("busy_timeout(%d)", busyTry.Milliseconds())
	pragmas := url.Values{"_txlock": {"immediate"}, "_pragma": {
		busy, "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)",
		fmt.Sprintf("journal_size_limit(%d)", journalLimit), "cache_size(-65536)", "temp_store(MEMORY)",
	}}
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: pragmas.Encode()}).String()
	if path == inMemory {
		pragmas["_pragma"] = []string{busy, "cache_size(-65536)", "temp_store(MEMORY)"}
		pragmas["vfs"] = []string{"memdb"}
		name = fmt.Sprintf("file:/chanq-%d?%s", memory.Add(1), pragmas.Encode())
	}
	c, err := newConnector(name, path)
	if err != nil {
		return nil, fmt.Errorf("chanq: embedded: open %s: %w", path, err)
	}
	return c, nil
}
