package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asCommand makes this test binary run as the command, for tests that kill it.
const asCommand = "CHANQ_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	os.Unsetenv("CHANQ_DSN") // of the user who runs the tests
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Setenv(asCommand, "1") // in every process that is started
	goleak.VerifyTestMain(m)
}

// program returns the path of the command as a program.
func program(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// ran is the result of a run of the command.
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

// newQueue creates a database with a queue and returns its path.
func newQueue(t *testing.T, queue string) string {
	t.Helper()
	db := filepath.Join(t.TempDir(), "queue.db")
	succeed(t, "", "migrate", "--db", db, queue)
	return db
}

// state returns the stats of the only queue.
func state(t *testing.T, db string) statsLine {
	t.Helper()
	var list []statsLine
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "stats", "--db", db, "-o", "json").out), &list))
	require.Len(t, list, 1)
	return list[0]
}
