package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
	"github.com/chanq/chanq/prove/testdb"
)

// asMain makes the test binary the command.
const asMain = "CHANQ_FIRSTHOUR_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		os.Exit(0)
	}
	m.Run()
}

// process is the command in a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(testdb.Soon(t), self, append(args, "-out", filepath.Join(t.TempDir(), "report.md"), "-n", "100")...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	return cmd
}

func TestTheExitStatusSaysWhetherTheServerDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
	}{
		"as expected":  {[]string{"-dsn", emulated(t).DSN(), "-parts", "facts"}, 0},
		"a difference": {[]string{"-dsn", emulated(t, answers("delayed_durability_desc", instance.Answer{Rows: [][]any{{"FORCED"}}})).DSN(), "-parts", "facts"}, 1},
		"no server":    {[]string{"-dsn", "sqlserver://sa:none@127.0.0.1:1?database=master"}, 2},
		"no flags":     {nil, 2},
		"a wrong part": {[]string{"-dsn", "sqlserver://127.0.0.1", "-parts", "fact"}, 2},
		"two servers":  {[]string{"-dsn", "sqlserver://127.0.0.1", "-docker", "2022"}, 2},
		"a wrong year": {[]string{"-docker", "2017"}, 2},
		"help":         {[]string{"-h"}, 0},
	} {
		cmd := process(t, c.args...)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, c.status, cmd.ProcessState.ExitCode(), "%s: %s", name, out)
	}
}
