// Package embedded opens SQLite databases tuned for queues. The driver is
// modernc.org/sqlite: pure Go, nothing to install.
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

// journalLimit is the length in bytes that the write-ahead log is cut to when it
// is begun anew. It stays below it by itself, unless somebody reads for long.
const journalLimit = 32 << 20

// journalSuffix is that of the write-ahead log's name, which SQLite chose.
const journalSuffix = "-wal"

// busyTimeout is how long a writer waits for another one.
const busyTimeout = 10 * time.Second

// memory numbers the databases in memory, so that each Open has its own.
var memory atomic.Int64

// Open opens, or creates, the SQLite database at path; several processes may
// share the file. Path ":memory:" is a database in memory that lives until the
// *sql.DB is closed.
//
// The file is in write-ahead-log mode, so that readers and the writer do not
// wait for each other; a commit is on disk when it returns (synchronous=FULL, and
// fullfsync, without which macOS leaves it in the cache of the disk). The file must
// be on a disk of this machine: on a network file system (NFS, SMB) a write-ahead
// log is unsafe, as its index is shared memory and locks there are not to be relied
// on.
// Transactions take the write lock when they begin, also those that only read, and
// wait up to 11 s for it; what takes longer fails as SQLITE_BUSY, as does a
// goroutine that holds a transaction and writes outside of it. Writers take turns,
// instead of polling for the lock as SQLite has them do: within this process in the
// order of asking, and between processes by locks on two empty files, path-turn
// and path-next, which are left behind. Where those cannot be had (on Windows, or without the
// right to make the files), and with programs that do not know them, processes poll.
//
// Idle consumers of chanq wake when another process has sent something, because the driver of
// the *sql.DB is a chanq.Notifier (see chanq.Config.Notifier; chanq.NoNotifier switches it off). It
// notifies by named pipes in the directory path-notify, which idle consumers make: one for each plain queue,
// which is left behind, and one for each ordered queue and process. That costs some microseconds per commit. Where there are no such pipes (on
// Windows, on FAT, or without the right to make them), a process with idle consumers asks
// SQLite each 5 ms whether anything was committed, on a connection of its own, which is some
// percent of a core.
//
// chanq.Migrate gives a file without tables the setting auto_vacuum = INCREMENTAL, so that consumers return the space of deleted messages
// to the file system. Call it before you make tables of your own. It leaves a file with tables as it is: PRAGMA auto_vacuum = INCREMENTAL
// and VACUUM change it, while no other program uses the file.
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

// Files are the names that the files of a database at path may have: the database,
// its write-ahead log, the index of that, and the locks of the turn among
// processes; and, after what is in it now, the directory of the pipes that wake consumers.
// They may be removed together, in this order, while no process uses the database.
func Files(path string) []string {
	files := []string{path}
	for _, suffix := range []string{journalSuffix, "-shm", "-journal", turnSuffix, nextSuffix} {
		files = append(files, path+suffix)
	}
	pipes, _ := os.ReadDir(path + notifySuffix) // which may not be there
	for _, pipe := range pipes {
		files = append(files, filepath.Join(path+notifySuffix, pipe.Name()))
	}
	return append(files, path+notifySuffix)
}

// Connector is Open for programs that wrap drivers, for example for tracing: give the wrapped connector to sql.OpenDB. A wrapper must
// pass Close on. If its Driver method returns another driver than the connector's, set chanq.Config.Notifier to the connector's driver,
// which is one, or idle consumers of other processes poll.
func Connector(path string) (driver.Connector, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("chanq: embedded: path %q is neither a file nor \":memory:\"", path)
	}
	busy := fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())
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
