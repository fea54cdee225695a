//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
)

func TestCtrlCDropsWhatWasCreated(t *testing.T) {
	reached, hold := make(chan bool), make(chan bool)
	i := emulated(t, func(r instance.Request) (instance.Answer, bool) {
		if r.Text == "SET SHOWPLAN_XML ON" { // the databases and the first tables exist
			close(reached)
			<-hold
		}
		return instance.Answer{}, false
	})
	cmd := process(t, "-dsn", i.DSN(), "-parts", "plans")
	progress, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	<-reached
	require.Contains(t, i.Databases(), "chanq_firsthour_locks")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	close(hold)
	said, err := io.ReadAll(progress)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", said)
	require.Equal(t, []string{"master"}, i.Databases(), "%s", said)
	require.NotContains(t, string(said), "emulator-password")
	report, err := os.ReadFile(cmd.Args[slices.Index(cmd.Args, "-out")+1])
	require.NoError(t, err)
	require.Contains(t, string(report), "**Not all parts have run:** ")
	require.NotContains(t, string(report), "Everything is")
}

// A program called docker answers as Docker does, and writes down with what it was called.
func TestAContainerIsStartedAndRemoved(t *testing.T) {
	i := emulated(t)
	i.AdmitAnyPassword()
	folder := t.TempDir()
	address := strings.TrimSuffix(i.DSN()[strings.Index(i.DSN(), "@")+1:], "?database=master&encrypt=disable")
	script := "#!/bin/sh\necho \"$*\" >>" + folder + "/calls\ncase $1 in run) echo 0123abc ;; port) echo " + address + " ;; esac\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte(script), 0o755))
	cmd := process(t, "-docker", "2022", "-parts", "facts")
	cmd.Env = append(cmd.Env, "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	calls, err := os.ReadFile(filepath.Join(folder, "calls"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(calls)), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^run --detach --rm --name (chanq-firsthour-\w+) --platform linux/amd64 .*ACCEPT_EULA=Y.* --publish 127\.0\.0\.1::1433 mcr\.microsoft\.com/mssql/server:2022-latest$`, lines[0])
	require.Regexp(t, `^port chanq-firsthour-\w+ 1433/tcp$`, lines[1])
	require.Regexp(t, `^rm --force --volumes chanq-firsthour-\w+$`, lines[2])
}
