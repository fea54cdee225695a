// Package goclock makes SQLite use the time of Go, for tests. In a bubble of testing/synctest it is the bubble's.
package goclock

import (
	"sync"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// Use makes all databases of modernc.org/sqlite in this process, in memory and in files, use time.Now for their time and time.Sleep while
// they wait for a lock. Call it before you open one; later calls do nothing. Outside of bubbles nothing changes: the time is the same.
func Use() { use() }

var use = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	for _, vfs := range []string{"memdb", "unix", "win32"} {
		name, err := libc.CString(vfs)
		if err != nil {
			panic(err)
		}
		found := sqlite3.Xsqlite3_vfs_find(tls, name)
		libc.Xfree(tls, name)
		if found == 0 && vfs == "memdb" {
			panic("goclock: this version of modernc.org/sqlite has no VFS " + vfs)
		}
		if found == 0 {
			continue // of another operating system
		}
		v := *(**sqlite3.Tsqlite3_vfs)(unsafe.Pointer(&found))
		v.FxSleep = address(sleep)
		v.FxCurrentTimeInt64 = address(currentTime)
	}
})

// address returns the pointer by which SQLite, translated from C, calls a function.
func address[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func sleep(_ *libc.TLS, _ uintptr, micros int32) int32 {
	time.Sleep(time.Duration(micros) * time.Microsecond)
	return micros
}

// julianEpoch is how many milliseconds before Unix's epoch that of Julian days is.
const julianEpoch = 210_866_760_000_000

func currentTime(_ *libc.TLS, _, to uintptr) int32 {
	**(**int64)(unsafe.Pointer(&to)) = time.Now().UnixMilli() + julianEpoch
	return 0
}
