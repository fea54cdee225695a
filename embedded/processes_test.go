package embedded_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"write": child.Does(writeWithoutEnd), "read": child.Does(read), "own": child.Does(own)})
	goleak.VerifyTestMain(m)
}

// writeWithoutEnd writes as fast as possible until its parent stops it. It prints a line when it
// has begun.
func writeWithoutEnd(ctx context.Context, path string, _ <-chan string) error {
	db, err := embedded.Open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	for first := true; ctx.Err() == nil; first = false {
		if _, err := db.Exec("UPDATE other SET n = n + 1"); err != nil {
			return err
		}
		if first {
			os.Stdout.WriteString("begun\n")
		}
	}
	return nil
}

// startWriter starts a process that writes to path until stop is called.
func startWriter(t *testing.T, path string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	begun := make(chan string, 1)
	other, err := child.Start(ctx, "write", path, func(plainQueue string) { begun <- plainQueue })
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = other.Wait()
	})
	select {
	case <-begun:
	case <-other.Ended():
		require.NoError(t, other.Wait())
	}
	return func() {
		other.Stop()
		require.NoError(t, other.Wait())
	}
}

func openShared(t *testing.T) (string, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := embedded.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.Exec("CREATE TABLE other (n INTEGER); INSERT INTO other VALUES (0); CREATE TABLE mine (n INTEGER)")
	require.NoError(t, err)
	return path, db
}

func takeWriterLock(t *testing.T, path string) (give func()) {
	t.Helper()
	give, ok := embedded.TakeWriterLock(path)
	if !ok {
		give()
		t.Skip("no locks between processes on this system: writers poll")
	}
	return give
}

// The test counts the writes of the other process while this process waits, because the elapsed
// time depends on the machine.
func TestAProcessThatWritesContinuouslyDoesNotStarveOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path, db := openShared(t)
	takeWriterLock(t, path)()
	stop := startWriter(t, path)
	count := func() (n int) {
		require.NoError(t, db.QueryRowContext(ctx, "SELECT n FROM other").Scan(&n))
		return n
	}
	const writes = 100
	passed := 0
	for range writes {
		was := count()
		asked := count()
		for ; asked == was; asked = count() { // wait for the next write of the other process
		}
		var written int
		require.NoError(t, db.QueryRowContext(ctx, "INSERT INTO mine SELECT n FROM other RETURNING n").Scan(&written))
		passed += written - asked
	}
	stop()
	t.Logf("%d writes of the other process while this one waited for %d", passed, writes)
	require.Less(t, passed, 10*writes)
}

func TestTheWriterLockOfAnotherProcessIsWaitedForOnce(t *testing.T) {
	testdb.Long(t) // bounds real time
	path, db := openShared(t)
	insert := func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "INSERT INTO mine VALUES (1)")
		return err
	}
	give := takeWriterLock(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, insert(ctx), context.DeadlineExceeded, "a writer waits for the lock")
	began := time.Now()
	const writes = 100
	for range writes {
		require.NoError(t, insert(t.Context()), "but not permanently")
	}
	require.Less(t, time.Since(began), writes/2*embedded.Patience, "only the first writer waits")
	give()
	require.NoError(t, insert(t.Context()))
	takeWriterLock(t, path)()
	require.NoError(t, insert(t.Context()))
}

func TestWithoutLockFilesWritersUseTheLockOfSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.Mkdir(path+"-next", 0o700))
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
}
