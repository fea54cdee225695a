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

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/embedded/goclock"
)

// memories has the in-memory databases, by their addresses. Several *sql.DB share one, and its queue of writers.
var (
	memories      sync.Map // address → driver.Connector
	memoryNumbers atomic.Int64
)

// createMemory creates a database that exists until the test ends.
func createMemory(t testing.TB) string {
	goclock.Use()
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
	goclock.Use()
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path+"-notify", nil, 0o600))
	require.NoError(t, os.Mkdir(path+"-turn", 0o700))
	return path
}

// unowned hides Close, so that closing one *sql.DB keeps the database open for the others.
type unowned struct{ inner driver.Connector }

func (u unowned) Connect(ctx context.Context) (driver.Conn, error) { return u.inner.Connect(ctx) }
func (u unowned) Driver() driver.Driver                            { return u.inner.Driver() }
