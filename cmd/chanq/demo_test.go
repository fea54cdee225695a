package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/microsoft/go-mssqldb/msdsn"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
)

func TestDemoEndsWithItsResult(t *testing.T) {
	dir := folderOf(t, 40)
	r := succeed(t, "", "demo", "--dir", dir)
	require.Equal(t, "verified 40 files, 0 differences, 0 lost, 0 duplicated", r.lines()[len(r.lines())-1])
	require.Contains(t, r.err, "hashing through two queues: 40 of 40")
	temporary := regexp.MustCompile(`--db (\S+)`).FindStringSubmatch(r.err)
	require.NotNil(t, temporary)
	require.NoDirExists(t, filepath.Dir(temporary[1]), "the temporary file is removed")
	require.JSONEq(t, `{"verified":40,"differences":0,"lost":0,"duplicated":0,"changed":0,"skipped":0}`, succeed(t, "", "demo", "--dir", dir, "-o", "json").out)
}

func TestDemoFailsOnADifference(t *testing.T) {
	dir, db := folderOf(t, 3), filepath.Join(t.TempDir(), "demo.db")
	succeed(t, "", "demo", "--dir", dir, "--db", db)
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	_, err = c.ExecContext(t.Context(), "UPDATE chanq_demo_files SET counted = 0 WHERE file_no = 1")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	r := runIn(t.Context(), "", "demo", "--db", db)
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.out, "verified 2 files, 0 differences, 1 lost, 0 duplicated\n")
	require.Contains(t, r.err, "chanq: demo: the result of the queues differs from the files")
}

func TestDemoKeepsTheQueuesOfAFile(t *testing.T) {
	dir, db := folderOf(t, 10), filepath.Join(t.TempDir(), "demo.db")
	succeed(t, "", "demo", "--dir", dir, "--db", db)
	require.Contains(t, succeed(t, "", "demo", "--db", db).out, "verifying again")
	require.Len(t, succeed(t, "", "stats", "--db", db).lines(), 3, "its queues are ordinary queues")
}

// The server cannot be reached, but the error names the right server. Only the first command line
// has its password.
func TestDemoTakesTheDatabaseFlagsOfTheOtherCommands(t *testing.T) {
	const dsn = "sqlserver://sa:S3CRET-pw@127.0.0.1:1?dial+timeout=1"
	file := filepath.Join(t.TempDir(), "demo.dsn")
	require.NoError(t, os.WriteFile(file, []byte(dsn+"\n"), 0o600))
	t.Setenv("DEMO_DSN", dsn)
	dir := folderOf(t, 1)
	for _, way := range [][]string{{"--dsn", dsn}, {"--dsn", "@" + file}, {"--dsn", "env:DEMO_DSN"}, nil} {
		if way == nil {
			t.Setenv("CHANQ_DSN", dsn)
		}
		said := fail(t, exitFailed, append([]string{"demo", "--dir", dir}, way...)...)
		require.Contains(t, said, "connect to SQL Server 127.0.0.1", way)
		require.NotContains(t, said, "S3CRET", way)
	}
	succeed(t, "", "demo", "--dir", dir, "--db", filepath.Join(t.TempDir(), "demo.db"))
}

func TestDemoPrintsTheNextCommandsWithoutTheDSN(t *testing.T) {
	server := target{sqlServer: &msdsn.Config{}}
	require.Equal(t, "chanq demo --dsn …", (&app{dsn: "sqlserver://sa:x@localhost"}).demoAgain(server))
	require.Equal(t, "chanq demo --dsn '@my demo.dsn'", (&app{dsn: "@my demo.dsn"}).demoAgain(server))
	require.Equal(t, "chanq demo --dsn env:DEMO_DSN", (&app{dsn: "env:DEMO_DSN"}).demoAgain(server))
	require.Equal(t, "chanq demo", (&app{}).demoAgain(server), "CHANQ_DSN")
}

func TestDemoFindsTheStandardLibrary(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GOROOT", dir)
	require.Contains(t, fail(t, exitFailed, "demo"), "give another folder by --dir")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "src", "fmt"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "src", "fmt", "print.go"), []byte("package fmt"), 0o644))
	require.Contains(t, succeed(t, "", "demo").out, "verified 1 files")
}

func TestDemoWithoutGoNamesTheFlag(t *testing.T) {
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", t.TempDir())
	require.Contains(t, fail(t, exitFailed, "demo"), "give another folder by --dir")
}

func TestCommandLinesAreQuotedForTheShell(t *testing.T) {
	require.Equal(t, "chanq demo --db 'it'\\''s here.db' --schema x", (&app{schema: "x"}).demoAgain(target{file: "it's here.db"}))
	require.Equal(t, `chanq demo --db $'it\'s\\red\x1b.db'`, (&app{}).demoAgain(target{file: "it's\\red\x1b.db"}), "and for the terminal")
}

// Ten times in a row the demo is killed without warning, early or late, and started again on the
// same file. If it ends before it is killed, because this process has paused, it starts over.
func TestDemoSurvivesKills(t *testing.T) {
	files, kills := testdb.Of(3000, 5000), testdb.Of(4, 10)
	dir, db := folderOf(t, files), filepath.Join(t.TempDir(), "demo.db")
	args := []string{"demo", "--dir", dir, "--db", db, "--lease", "1s", "--progress-every", "2ms"}
	done, restarts, over := 0, 0, []string(nil)
	for i := 0; i < kills; {
		child := start(t, append(slices.Clone(args), over...)...)
		runs := false
		if i%2 == 0 { // at any moment, even before the tables exist
			runs = child.read(t, 1+rand.IntN(30), -1)
		} else { // during the work
			runs = child.read(t, 1+rand.IntN(5), done) && child.last < files
		}
		require.NoError(t, child.cmd.Process.Kill())
		err := child.cmd.Wait()
		if err != nil {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, -1, exit.ExitCode(), "ended by a signal")
		}
		if !runs || err == nil {
			restarts++
			require.Less(t, restarts, 10)
			done, over = 0, []string{"--fresh"}
			continue
		}
		if child.first >= 0 {
			require.GreaterOrEqual(t, child.first, done, "counts are not lost")
			done = child.last
		}
		i, over = i+1, nil
	}
	out := finish(t, args...)
	require.Regexp(t, "going on: |verifying again", out)
	require.True(t, strings.HasSuffix(out, fmt.Sprintf("\nverified %d files, 0 differences, 0 lost, 0 duplicated\n", files)), out)
}

func TestInterruptDrainsTheDemo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGINT for another process")
	}
	files := testdb.Of(2000, 5000)
	dir, db := folderOf(t, files), filepath.Join(t.TempDir(), "demo.db")
	args := []string{"demo", "--dir", dir, "--db", db, "--progress-every", "2ms"}
	restarts, over := 0, []string(nil)
	for i, signals := 0, []os.Signal{os.Interrupt, syscall.SIGTERM}; i < len(signals); {
		child := start(t, append(slices.Clone(args), over...)...)
		runs := child.read(t, 1, 0) && child.last < files
		require.NoError(t, child.cmd.Process.Signal(signals[i]))
		rest, err := io.ReadAll(child.lines)
		require.NoError(t, err)
		if err = child.cmd.Wait(); err != nil {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, exitInterrupted, exit.ExitCode())
		}
		if !runs || err == nil { // it ended before the signal, because this process has paused
			restarts++
			require.Less(t, restarts, 10)
			over = []string{"--fresh"}
			continue
		}
		require.Contains(t, string(rest), "continue with: chanq demo --db "+db+"\nchanq: interrupted\n")
		c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
		require.NoError(t, err)
		list, err := (&app{}).allStats(t.Context(), c, nil)
		require.NoError(t, err)
		for _, q := range list {
			require.Zero(t, q.Leased, "nothing stays leased in %s", q.name)
		}
		require.NoError(t, c.Close())
		i, over = i+1, nil
	}
	require.Contains(t, finish(t, args...), fmt.Sprintf("verified %d files, 0 differences, 0 lost, 0 duplicated\n", files))
}

// The first interrupt cannot end a command that waits for its reader. The second interrupt ends it.
func TestSecondInterruptAborts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGINT for another process")
	}
	db := newQueue(t, "mail")
	succeed(t, strings.Repeat(strings.Repeat("x", 500<<10)+"\n", 3), "send", "--db", db, "mail")
	cmd := exec.CommandContext(t.Context(), program(t), "receive", "--follow", "--db", db, "mail")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 1)) // it writes more than the pipe can hold
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, exitInterrupted, exit.ExitCode())
	require.Contains(t, said.String(), "chanq: aborted")
	require.Equal(t, 3, state(t, db).Leased+state(t, db).Ready, "messages without an ack stay")
}

// child is a running program, its standard error, and the first and the last count of files read
// from it (-1: none).
type child struct {
	cmd         *exec.Cmd
	lines       *bufio.Reader
	first, last int
}

func start(t *testing.T, args ...string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), args...)
	cmd.Stdout = &bytes.Buffer{}
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &child{cmd, bufio.NewReader(stderr), -1, -1}
}

// finish runs the program to its end and returns its output.
func finish(t *testing.T, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program(t), args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, said.Bytes()[max(0, said.Len()-2000):])
	return string(out)
}

var hashed = regexp.MustCompile(`^hashing through two queues: (\d+) of`)

// read returns after n lines: any lines if beyond is negative, otherwise counts above beyond. It reports whether the
// program had not ended by then.
func (c *child) read(t *testing.T, n, beyond int) (runs bool) {
	t.Helper()
	for n > 0 {
		line, err := c.lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return false
		}
		require.NoError(t, err)
		if found := hashed.FindStringSubmatch(line); found != nil {
			c.last, err = strconv.Atoi(found[1])
			require.NoError(t, err)
			if c.first < 0 {
				c.first = c.last
			}
		}
		if beyond < 0 || c.last > beyond {
			n--
		}
	}
	return true
}

// folderOf creates a folder of n files in subfolders of a hundred.
func folderOf(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("folder-%03d", i/100))
		if i%100 == 0 {
			require.NoError(t, os.Mkdir(sub, 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(sub, fmt.Sprintf("file-%03d", i)), []byte(strings.Repeat(strconv.Itoa(i), 50)), 0o644))
	}
	return dir
}
