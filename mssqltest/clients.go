package mssqltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tedious finds Node.js, and the environment variable with which Node.js finds tedious: in CHANQ_TEST_NODE_MODULES or
// where npm puts it in testdata/clients. Without them the test is skipped.
func Tedious(t testing.TB) (node, variable string) {
	t.Helper()
	modules := os.Getenv("CHANQ_TEST_NODE_MODULES")
	if modules == "" {
		_, here, _, _ := runtime.Caller(0)
		modules = filepath.Join(filepath.Dir(here), "testdata", "clients", "node_modules")
	}
	modules, err := filepath.Abs(modules)
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(modules, "tedious")); err != nil {
		t.Skip("NOT TESTED with tedious: npm ci in mssqltest/testdata/clients installs it")
	}
	node, err = exec.LookPath("node")
	if err != nil {
		t.Skip("NOT TESTED with tedious: Node.js is not here")
	}
	return node, "NODE_PATH=" + modules
}

// PyMSSQL finds a Python that has pymssql, as Debian packages it or as PyPI does. Without one the test is skipped.
func PyMSSQL(t testing.TB) (python string) {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import pymssql").Run() == nil {
			return python
		}
	}
	t.Skip("NOT TESTED with FreeTDS: pymssql is not here (Debian's python3-pymssql)")
	return ""
}
