package doctor

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// oldestSQLite is the first version with STRICT tables.
const oldestSQLite = 3_037_000

// sqlite checks the file and the settings of this program's connections. It cannot see the settings of
// other programs.
func (e *examination) sqlite() {
	var version string
	var major, minor, patch int
	if e.ask("version", `SELECT sqlite_version()`, &version) {
		f := Finding{Check: "version", Status: OK, Found: "SQLite " + version}
		_, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
		if err == nil && major*1_000_000+minor*1_000+patch < oldestSQLite {
			f.Status, f.Remedy = Failure, "use a driver with SQLite 3.37 or later"
		}
		e.add(f)
	}
	var mode string
	if e.ask("journal", `PRAGMA journal_mode`, &mode) {
		f := Finding{Check: "journal", Status: OK, Found: "journal_mode is " + mode}
		if mode != "wal" {
			f.Status, f.Remedy = Warning, "open the file by embedded.Open, or set PRAGMA journal_mode = WAL once: without it readers and the writer wait for each other"
		}
		e.add(f)
	}
	var pages, free, size int64
	if e.ask("size", `PRAGMA page_count`, &pages) && e.ask("size", `PRAGMA freelist_count`, &free) && e.ask("size", `PRAGMA page_size`, &size) {
		f := Finding{Check: "size", Status: OK, Found: fmt.Sprintf("the file has %d MiB, of which %d MiB are free", pages*size>>20, free*size>>20)}
		if free*size > 1<<30 && free > pages/2 {
			f.Status, f.Remedy = Warning, "new messages use the space. Consumers return it to the file system if the file has auto_vacuum = INCREMENTAL; to set that, run PRAGMA auto_vacuum = INCREMENTAL and VACUUM on one connection, while no other program uses the file"
		}
		e.add(f)
	}
	var number int
	var name, file string
	if e.ask("file system", `SELECT seq, name, file FROM pragma_database_list WHERE name = 'main'`, &number, &name, &file) && file != "" {
		e.fileSystem(file)
		if mode == "wal" {
			e.checkpoint(file, size)
		}
	}
}

// fileSystem checks the location of the file: the index of a write-ahead log is shared memory, which two
// machines cannot share, and locks over a network are unreliable.
func (e *examination) fileSystem(file string) {
	network, known := fileSystem(file)
	switch {
	case !known:
		e.add(Finding{Check: "file system", Status: Unseen, Found: "what file system the file is on cannot be seen here", Remedy: "see that it is a disk of this machine, not NFS or SMB"})
	case network != "":
		e.add(Finding{Check: "file system", Status: Failure, Found: "the file is on a network file system, " + network,
			Remedy: "move it to a disk of this machine, and have other machines reach the programs there; for several machines use PostgreSQL or SQL Server"})
	default:
		e.ok("file system", "the file is not on a network file system that is known")
	}
}

// longLog is how much of a write-ahead log may wait for a checkpoint. SQLite begins a checkpoint at 4
// MiB.
const longLog = 64 << 20

// The index of a write-ahead log, file-shm, in the byte order of the machine: two copies of a header of
// 48 bytes, then how many frames checkpoints have copied into the database
// (https://www.sqlite.org/walformat.html, section 2).
const (
	indexLast  = 16 // mxFrame
	indexDone  = 96 // nBackfill
	indexBytes = indexDone + 4
)

// checkpoint checks how much of the write-ahead log has not been copied by a checkpoint: a read of an
// older snapshot prevents it from being overwritten, and the log grows without bound.
func (e *examination) checkpoint(file string, page int64) {
	most := e.Log
	if most == 0 {
		most = longLog
	}
	index := make([]byte, indexBytes)
	waiting := int64(0)
	switch in, err := os.Open(file + "-shm"); {
	case os.IsNotExist(err): // only connections that need no index have the file open
	case err != nil:
		e.unseen("log", "", err)
		return
	default:
		_, err := io.ReadFull(in, index)
		in.Close()
		if err != nil {
			e.unseen("log", "", err)
			return
		}
		last, done := binary.NativeEndian.Uint32(index[indexLast:]), binary.NativeEndian.Uint32(index[indexDone:])
		waiting = (int64(last) - int64(done)) * page
	}
	f := Finding{Check: "log", Status: OK, Found: fmt.Sprintf("%d KiB of the write-ahead log wait for a checkpoint", waiting>>10)}
	if waiting > most {
		f.Status = Warning
		f.Remedy = "a connection keeps a read transaction open, of this program or another (Rows that are not closed, a BEGIN without an end, a backup): find it and end it, or reads become slower and the log grows"
	}
	e.add(f)
}
