package testdb

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/chanq/chanq/embedded"
)

// memories has the in-memory databases, by their addresses. Several *sql.DB share one, and its queue of writers.
var (
	memories      sync.Map // address → driver.Connector
	memoryNumbers atomic.Int64
)

// createMemory creates a database that exists until the test ends.
func createMemory(t testing.TB) string {
	goClock()
	c, err := embedded.Connector(":memory:")
	require.NoError(t, err)
	address := fmt.Sprintf("memory %d", memoryNumbers.Add(1))
	memories.Store(address, c)
	t.Cleanup(func() {
		memories.Delete(address)
		require.NoError(t, c.(interface{ Close() error }).Close())
	})
	return address
}

func connectMemory(address string) (driver.Connector, error) {
	c, ok := memories.Load(address)
	if !ok {
		return nil, fmt.Errorf("there is no database in memory at %q", address)
	}
	return unowned{c.(driver.Connector)}, nil
}

// createAlone names a file that only this process can use: the names of its pipes and locks are taken.
func createAlone(t testing.TB) string {
	goClock()
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path+"-notify", nil, 0o600))
	require.NoError(t, os.Mkdir(path+"-turn", 0o700))
	return path
}

// goClock makes SQLite's databases use Go's time and Go's sleep while they wait for a lock. In a bubble both
// are the bubble's.
var goClock = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	for _, vfs := range []string{"memdb", "unix"} {
		name, err := libc.CString(vfs)
		if err != nil {
			panic(err)
		}
		found := sqlite3.Xsqlite3_vfs_find(tls, name)
		libc.Xfree(tls, name)
		if found == 0 {
			panic("testdb: this version of modernc.org/sqlite has no VFS " + vfs)
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

// unowned hides Close, so that closing one *sql.DB keeps the database open for the others.
type unowned struct{ inner driver.Connector }

func (u unowned) Connect(ctx context.Context) (driver.Conn, error) { return u.inner.Connect(ctx) }
func (u unowned) Driver() driver.Driver                            { return u.inner.Driver() }
