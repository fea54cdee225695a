// Package examples tests the common behaviour of the programs, as processes.
package examples

import (
	"bufio"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

// A program exits with 1 after an error, and with 0 if the test runs it without an error, on its own or after a signal. Its standard
// input stays open. Linking eleven programs takes a while.
func TestAProgramEndsWithItsExitCode(t *testing.T) {
	testdb.Long(t)
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGTERM")
	}
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, c := range []struct {
		program, file string
		args          []string
		wants         string // expected output; a regular expression
		signal        bool   // a signal is sent then
	}{
		{program: "first", file: "shop.db", wants: "order: cake"},
		{program: "channels", file: "post.db", wants: `Thank you for your return of cake\.`},
		{program: "hello", file: "shop.db", wants: "order 3: cake, attempt 1"},
		{program: "batches", file: "measurements.db", args: []string{"1", "-1", "2"}, wants: "WARN chanq: attempt failed .* CHECK constraint"},
		{program: "ledger", file: "ledger.db", args: []string{"ada=100", "ada=-200"}, wants: "ada -200: balance 100, refused true"},
		{program: "pipeline", file: "pipeline.db", args: []string{"missing"}, wants: "WARN chanq: attempt failed .* no such file"},
		{program: "service", file: "jobs.db", wants: "nothing is older than 30 days", signal: true},
		{program: "longjob", file: "longjob.db", wants: "page 0", signal: true},
		{program: "outbox", file: "outbox.db"},
		{program: "redrive", file: "shop.db"},
		{program: "shop", file: "market.db", args: []string{"checkout", "1", "ada", "1200"}},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, c.file)
			if c.program == "longjob" {
				inFile(t, file, func(db *sql.DB) { send(t, db, "jobs", 2) })
			}
			run := func() error {
				cmd := exec.CommandContext(t.Context(), filepath.Join(bin, c.program), c.args...)
				cmd.Dir = dir
				_, err := cmd.StdinPipe()
				require.NoError(t, err)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				cmd.Stderr = cmd.Stdout
				require.NoError(t, cmd.Start())
				var printed strings.Builder
				for lines := bufio.NewScanner(out); lines.Scan(); {
					printed.WriteString(lines.Text() + "\n")
					if c.signal && strings.Contains(lines.Text(), c.wants) {
						require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
					}
				}
				err = cmd.Wait()
				if err == nil {
					require.Regexp(t, c.wants, printed.String())
				}
				return err
			}
			if c.wants != "" {
				require.NoError(t, run())
				inFile(t, file, func(db *sql.DB) {
					var mode int
					require.NoError(t, db.QueryRow("PRAGMA auto_vacuum").Scan(&mode))
					require.Equal(t, 2, mode, "the program created its own table before it called Migrate")
				})
			}
			inFile(t, file, func(db *sql.DB) {
				_, err := db.Exec("DROP TABLE IF EXISTS chanq__queues; CREATE TABLE chanq__queues (wrong INTEGER)")
				require.NoError(t, err)
			})
			var failed *exec.ExitError
			require.True(t, errors.As(run(), &failed))
			require.Equal(t, 1, failed.ExitCode())
		})
	}
}

// inFile opens a file while no program uses it.
func inFile(t *testing.T, file string, do func(*sql.DB)) {
	db, err := embedded.Open(file)
	require.NoError(t, err)
	defer db.Close()
	do(db)
}

func send(t *testing.T, db *sql.DB, queue string, body int) {
	require.NoError(t, chanq.Migrate(t.Context(), db, queue, chanq.Config{}))
	q, err := chanq.Open[int](t.Context(), db, queue, chanq.Config{})
	require.NoError(t, err)
	_, err = q.Send(t.Context(), chanq.Msg(body))
	require.NoError(t, err)
}

// Without hooks the error of a handler is only in the database.
func TestAProgramThatHandlesMessagesLogsWhatFails(t *testing.T) {
	files, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.Len(t, files, 11)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if regexp.MustCompile(`\.Handle\(|\.HandleBatches\(|chanqjobs\.Work\(`).Match(source) {
			require.Contains(t, string(source), "chanq.LogHooks(nil, slog.LevelWarn)", file)
		}
	}
}
