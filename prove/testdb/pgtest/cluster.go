package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cluster is a PostgreSQL server of one test, which the test can crash.
type Cluster struct{ script, dir, dsn string }

// StartCluster starts a server with .ci/postgres and these settings ("fsync=on"). It ends with the test. If tests have
// no PostgreSQL, or its tools are not on this machine, the test is skipped.
func StartCluster(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	if os.Getenv(Variable) == "" {
		t.Skipf("NOT TESTED on PostgreSQL: %s is not set", Variable)
	}
	script := script(t)
	if err := exec.Command(script, "find").Run(); err != nil {
		t.Skipf("NOT TESTED on PostgreSQL: initdb and pg_ctl are not on this machine, and this test has to crash a server of its own: %v", err)
	}
	return start(t, script, "start", settings...)
}

// Standby starts a standby of the server, with the application_name "standby". It ends with the test.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	return start(t, c.script, "standby", c.dir)
}

// start starts a server in a new directory.
func start(t testing.TB, script, action string, args ...string) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "chanq-postgres-") // of another user: t.TempDir is in a private one
	require.NoError(t, err)
	c := &Cluster{script: script, dir: dir}
	t.Cleanup(func() {
		_, err := c.run("stop")
		require.NoError(t, err)
	})
	dsn, err := c.run(action, args...)
	require.NoError(t, err)
	c.dsn = strings.TrimSpace(dsn)
	return c
}

// script finds .ci/postgres above the directory of the test, which can be in any module of the repository.
func script(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for ; ; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, ".ci", "postgres")
		if _, err := os.Stat(file); err == nil {
			return file
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no .ci/postgres above the working directory")
	}
}

// DSN returns the connection string of the server.
func (c *Cluster) DSN() string { return c.dsn }

// Crash stops the server immediately: nothing is flushed, and transactions in progress are lost or committed.
func (c *Cluster) Crash() error {
	_, err := c.run("crash")
	return err
}

// Resume starts the server again and waits until it answers.
func (c *Cluster) Resume() error {
	_, err := c.run("resume")
	return err
}

// Promote makes a standby a primary.
func (c *Cluster) Promote() error {
	_, err := c.run("promote")
	return err
}

func (c *Cluster) run(action string, settings ...string) (string, error) {
	out, err := exec.Command(c.script, append([]string{action, c.dir}, settings...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s", c.script, action, err, exit.Stderr)
	}
	return string(out), err
}
