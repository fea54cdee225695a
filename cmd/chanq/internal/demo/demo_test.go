package demo_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/cmd/chanq/internal/demo"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestEveryFileIsCountedOnce(t *testing.T) {
	files := testdb.Of(300, 700)
	f := newFixture(t, files)
	result := f.run(t)
	require.Equal(t, demo.Result{Verified: files}, result)
	require.Equal(t, fmt.Sprintf("verified %d files, 0 differences, 0 lost, 0 duplicated", files), result.String())
	require.Equal(t, files, f.number(t, "SELECT count(DISTINCT message_id) FROM chanq_demo_files"), "a message for each file")
}

func TestEmptyFolderIsVerified(t *testing.T) {
	require.Equal(t, demo.Result{}, newFixture(t, 0).run(t))
}

func TestSecondRunVerifiesAgain(t *testing.T) {
	f := newFixture(t, 50)
	f.run(t)
	result := f.run(t)
	require.Equal(t, 50, result.Verified)
	require.Contains(t, f.said.String(), "all 50 files went through the queues before; verifying again")
}

func TestFreshStartsOver(t *testing.T) {
	f := newFixture(t, 20)
	f.run(t)
	f.write(t, "another", "content")
	require.Equal(t, 20, f.run(t).Verified, "a file created after the listing is not in it")
	f.opt.Fresh = true
	require.Equal(t, 21, f.run(t).Verified)
}

// A result of the previous demo is left over if the fresh demo is killed between the ledger and the
// queues.
func TestFreshRunIgnoresLeftOverMessages(t *testing.T) {
	f := newFixture(t, 20)
	f.run(t)
	q, err := chanq.Open[map[string]any](t.Context(), f.db, "files", chanq.Config{})
	require.NoError(t, err)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(t.Context(), chanq.Message[map[string]any]{Body: map[string]any{"no": 0, "path": "file-000000"}})
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	require.Equal(t, demo.Result{Verified: 20}, f.run(t))
	require.Equal(t, 1, f.number(t, "SELECT max(counted) FROM chanq_demo_files"))
}

func TestUnreadableFilesAreSkippedWithTheReason(t *testing.T) {
	f := newFixture(t, 3)
	require.NoError(t, os.Symlink("file-000000", filepath.Join(f.dir, "link")))
	listener, err := net.Listen("unix", filepath.Join(f.dir, "socket"))
	require.NoError(t, err)
	defer listener.Close()
	skipped := 2
	if runtime.GOOS == "linux" {
		f.write(t, "latin-\xe9", "named as another century did")
		skipped++
	}
	if os.Geteuid() != 0 { // root can read every file
		f.write(t, "shut", "secret")
		require.NoError(t, os.Chmod(filepath.Join(f.dir, "shut"), 0))
		skipped++
	}
	require.Equal(t, demo.Result{Verified: 3, Skipped: skipped}, f.run(t))
	require.Contains(t, f.said.String(), `skipped: "link": symbolic link`)
	require.Contains(t, f.said.String(), `skipped: "socket": socket`)
	if runtime.GOOS == "linux" {
		require.Contains(t, f.said.String(), "the name is not UTF-8")
	}
	if os.Geteuid() != 0 {
		require.Contains(t, f.said.String(), `skipped: "shut": permission denied`)
	}
}

func TestDatabaseInTheFolderIsSkipped(t *testing.T) {
	f := newFixture(t, 3)
	db := filepath.Join(f.dir, "queue.db")
	require.NoError(t, f.db.Close())
	f.db = open(t, db)
	require.NoError(t, os.Mkdir(db+"-notify", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(db+"-notify", "main.work"), nil, 0o600))
	f.opt.Own = embedded.Files(db)
	result := f.run(t)
	require.Equal(t, 3, result.Verified)
	require.Contains(t, f.said.String(), `skipped: "queue.db": it is the queue's own file`)
	require.NotContains(t, f.said.String(), "queue.db-notify")
}

func TestFileThatChangesIsNoDifference(t *testing.T) {
	f := newFixture(t, 5)
	f.run(t)
	f.write(t, "file-000001", "something longer than before")
	require.NoError(t, os.Remove(filepath.Join(f.dir, "file-000002")))
	require.Equal(t, demo.Result{Verified: 3, Changed: 2}, f.run(t))
	require.Contains(t, f.said.String(), `changed since it was listed, not compared: "file-000001": its size was`)
	require.Contains(t, f.said.String(), `changed since it was listed, not compared: "file-000002": no such file`)
}

// The verification must find differences.
func TestDifferencesAreFoundAndReported(t *testing.T) {
	f := newFixture(t, 30)
	f.run(t)
	for _, damage := range []string{
		"UPDATE chanq_demo_files SET digest = x'00' WHERE path = 'file-000003'",
		"UPDATE chanq_demo_files SET counted = 0 WHERE path = 'file-000004'",
		"UPDATE chanq_demo_files SET counted = 2 WHERE path = 'file-000005'",
	} {
		_, err := f.db.ExecContext(t.Context(), damage)
		require.NoError(t, err)
	}
	result := f.run(t)
	require.Equal(t, demo.Result{Verified: 29, Differences: 1, Lost: 1, Duplicated: 1}, result)
	require.False(t, result.OK())
	require.Contains(t, f.said.String(), `different: "file-000003": sha256 00 came through the queues`)
	require.Contains(t, f.said.String(), `lost: "file-000004"`)
	require.Contains(t, f.said.String(), `duplicated: "file-000005": its result was recorded 2 times`)
}

func TestOnlyTheFirstFindingsAreListed(t *testing.T) {
	f := newFixture(t, 1)
	for i := range 25 {
		require.NoError(t, os.Symlink("nowhere", filepath.Join(f.dir, fmt.Sprint("link", i))))
	}
	f.run(t)
	require.Contains(t, f.said.String(), "skipped: and 15 more (--verbose names them)")
	f.opt.Verbose = true
	f.said.Reset()
	f.run(t)
	require.NotContains(t, f.said.String(), "more (--verbose")
}

func TestAnInterruptedDemoContinues(t *testing.T) {
	files := testdb.Of(800, 1500)
	f := newFixture(t, files)
	for range 3 {
		ctx, interrupt := context.WithCancel(t.Context())
		f.opt.Progress, f.opt.Prefetch = &meter{after: 100, then: interrupt}, 50
		_, err := demo.Run(ctx, f.db, f.opt)
		interrupt()
		require.ErrorIs(t, err, demo.ErrInterrupted)
		require.Zero(t, f.number(t, "SELECT count(*) FROM chanq_files WHERE lease_until > CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"), "nothing stays leased")
		require.Zero(t, f.number(t, "SELECT count(*) FROM chanq_sums WHERE lease_until > CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"), "nothing stays leased")
	}
	done := f.number(t, "SELECT count(*) FROM chanq_demo_files WHERE counted = 1")
	require.Greater(t, done, 0)
	require.Less(t, done, files)
	f.opt.Progress = &meter{}
	require.Equal(t, demo.Result{Verified: files}, f.run(t))
	require.Contains(t, f.said.String(), fmt.Sprintf("going on: %d of %d files are done", done, files))
}

// Two processes can run one demo: each file is listed, hashed and counted once.
func TestTwoDemosShareTheWork(t *testing.T) {
	files := testdb.Of(300, 1000)
	f := newFixture(t, files)
	var wg sync.WaitGroup
	results := make([]demo.Result, 2)
	errs := make([]error, 2)
	for i := range 2 {
		wg.Go(func() {
			opt := f.opt
			opt.Out, opt.Progress = &bytes.Buffer{}, &meter{}
			results[i], errs[i] = demo.Run(t.Context(), open(t, f.path), opt)
		})
	}
	wg.Wait()
	for i := range 2 {
		require.NoError(t, errs[i])
		require.Equal(t, demo.Result{Verified: files}, results[i])
	}
	require.Equal(t, files, f.number(t, "SELECT count(*) FROM chanq_demo_files"))
}

func TestQueuesOfOtherProgramsAreRefused(t *testing.T) {
	f := newFixture(t, 1)
	require.NoError(t, chanq.Migrate(t.Context(), f.db, "files", chanq.Config{}))
	_, err := demo.Run(t.Context(), f.db, f.opt)
	require.ErrorContains(t, err, `queue "files" that is not the demo's`)
	require.Zero(t, f.number(t, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'chanq_demo%'"), "nothing was written")
}

func TestAnotherFolderIsRefused(t *testing.T) {
	f := newFixture(t, 1)
	f.run(t)
	f.opt.Dir = t.TempDir()
	_, err := demo.Run(t.Context(), f.db, f.opt)
	require.ErrorContains(t, err, "the database has a demo of "+f.dir)
	f.opt.Dir = ""
	require.Equal(t, 1, f.run(t).Verified, "without a folder the demo uses that of the database")
}

// fixture is a folder and a database.
type fixture struct {
	dir, path string
	db        *sql.DB
	opt       demo.Options
	said      bytes.Buffer
}

func newFixture(t *testing.T, files int) *fixture {
	t.Helper()
	dir, err := demo.Folder(t.TempDir())
	require.NoError(t, err)
	f := &fixture{dir: dir, path: filepath.Join(t.TempDir(), "demo.db")}
	f.db = open(t, f.path)
	f.opt = demo.Options{
		Dialect: sqlite.Dialect, Dir: dir, Workers: 2, LeaseFor: 10 * time.Second,
		Out: &f.said, Progress: &meter{},
	}
	for i := range files {
		f.write(t, fmt.Sprintf("file-%06d", i), fmt.Sprint("content ", i))
	}
	return f
}

func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := embedded.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func (f *fixture) write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o644))
}

func (f *fixture) run(t *testing.T) demo.Result {
	t.Helper()
	result, err := demo.Run(t.Context(), f.db, f.opt)
	require.NoError(t, err)
	return result
}

func (f *fixture) number(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, f.db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// meter calls then once, after a number of steps of the second part, the hashing.
type meter struct {
	mu       sync.Mutex
	what     string
	n, after int
	then     func()
}

func (m *meter) Start(what string, _, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.what = what
}

func (m *meter) Add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.what != "hashing through two queues" {
		return
	}
	if m.n += n; m.then != nil && m.n >= m.after {
		m.then()
		m.then = nil
	}
}

func (m *meter) End() {}
