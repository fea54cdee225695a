package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CHANQ_DSN") // of the person who runs the tests
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
		status = 1
	}
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

// built is the command as a program, for the tests that kill it: made once,
// without the race detector.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "chanq-test-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "chanq")
		if out, err := exec.Command("go", "build", "-o", built.path, ".").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build: %w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// ran is what a run of the command left.
type ran struct {
	status   int
	out, err string
}

func (r ran) lines() []string { return strings.Split(strings.TrimSuffix(r.out, "\n"), "\n") }

func runIn(ctx context.Context, input string, args ...string) ran {
	var out, errOut bytes.Buffer
	status := Run(ctx, args, strings.NewReader(input), &out, &errOut)
	return ran{status, out.String(), errOut.String()}
}

// succeed runs the command and requires exit status 0.
func succeed(t *testing.T, input string, args ...string) ran {
	t.Helper()
	r := runIn(t.Context(), input, args...)
	require.Equal(t, exitOK, r.status, "%v: %s", args, r.err)
	return r
}

// fail requires an exit status and one line on the standard error.
func fail(t *testing.T, status int, args ...string) string {
	t.Helper()
	r := runIn(t.Context(), "", args...)
	require.Equal(t, status, r.status, "%v: %s%s", args, r.out, r.err)
	require.Empty(t, r.out)
	require.True(t, strings.HasPrefix(r.err, "chanq: "), r.err)
	require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	require.False(t, strings.HasPrefix(r.err, "chanq: chanq: "), r.err)
	return r.err
}

// newQueue makes a database with a queue and returns its path.
func newQueue(t *testing.T, queue string) string {
	t.Helper()
	db := filepath.Join(t.TempDir(), "queue.db")
	succeed(t, "", "migrate", "--db", db, queue)
	return db
}

// state is the stats of the only queue.
func state(t *testing.T, db string) statsLine {
	t.Helper()
	var list []statsLine
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "stats", "--db", db, "-o", "json").out), &list))
	require.Len(t, list, 1)
	return list[0]
}
