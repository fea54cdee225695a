package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const serverDSN = "postgres://me:S3CRET-pw@127.0.0.1:1/x?connect_timeout=1"

func TestDSNIsReadFromAFileOrAVariable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "the dsn")
	require.NoError(t, os.WriteFile(file, []byte("\n"+serverDSN+" \r\n"), 0o600))
	t.Setenv("THE_DSN", serverDSN+"\n")
	for _, value := range []string{serverDSN, "@" + file, "env:THE_DSN"} {
		for _, a := range []*app{{dsn: value}, {}} {
			t.Setenv("CHANQ_DSN", value)
			found, err := a.target()
			require.NoError(t, err, value)
			require.Equal(t, "127.0.0.1", found.postgres.Host)
			require.Equal(t, "S3CRET-pw", found.postgres.Password)
			require.NotContains(t, a.redact("password S3CRET-pw is wrong"), "S3CRET")
		}
	}
}

// A DSN in the wrong place is not a file name, and no part of it is repeated.
func TestAMisplacedDSNIsNotRepeated(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, c := range []struct{ dsn, want string }{
		{"@" + serverDSN, "--dsn: the file after @ cannot be read: no such file or directory"},
		{"@", "--dsn: the file after @ cannot be read: no such file or directory"},
		{"@" + dir, "--dsn: the file after @ cannot be read: is a directory"},
		{"@" + write("empty", " \n"), "--dsn: the file after @ is empty"},
		{"@" + write("two", serverDSN+"\n"+serverDSN+"\n"), "--dsn: the file after @ has more than one line"},
		{"@" + write("long", strings.Repeat("S3CRET-pw", 100_000)), "--dsn: the file after @ has more than one line"},
		{"@" + write("nested", "@"+write("other", serverDSN)), "--dsn must be sqlserver://"},
		{"@" + write("odd", "mysql://me:S3CRET-pw@x"), "--dsn must be sqlserver://"},
		{"env:" + serverDSN, "--dsn: the environment variable after env: is not set"},
		{"env:", "--dsn: the environment variable after env: is not set"},
	} {
		said := fail(t, exitUsage, "stats", "--dsn", c.dsn)
		require.Contains(t, said, c.want)
		require.NotContains(t, said, "S3CRET", c.dsn)
		require.NotContains(t, said, dir, c.dsn)
	}
}
