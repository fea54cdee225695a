//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
)

func TestCtrlCDropsWhatWasCreated(t *testing.T) {
	reached, hold := make(chan bool), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	defer release() // if the test fails
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
	require.Contains(t, i.Databases(), "chanq_firsthour_unversioned")
	name := cmd.Args[slices.Index(cmd.Args, "-out")+1]
	first, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Contains(t, string(first), "running since ")
	lines := bufio.NewReader(progress)
	var said strings.Builder
	until := func(text string) {
		for !strings.Contains(said.String(), text) {
			line, err := lines.ReadString('\n')
			said.WriteString(line)
			require.NoError(t, err, "%s", &said)
		}
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	until("interrupted: ending the tests and dropping the databases, up to 30s\n")
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	until("interrupted already: waiting until the tests have ended (10s at most) and the databases are dropped (20s)\n")
	release()
	_, err = io.Copy(&said, lines)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), "%s", &said)
	require.Contains(t, said.String(), "the databases are dropped\n")
	require.Contains(t, said.String(), "firsthour: Ended in plans: interrupted. Until then: 0 differences, 0 not asked. Not run: facts, ")
	require.Equal(t, []string{"master"}, i.Databases(), "%s", &said)
	require.NotContains(t, said.String(), "emulator-password")
	report, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Contains(t, string(report), "**Ended in plans: interrupted. ")
	require.NotContains(t, string(report), "Everything is")
}

// The databases are dropped even if no process reads what the command prints.
func TestAClosedPipeDoesNotEndTheRun(t *testing.T) {
	i := emulated(t)
	cmd := process(t, "-dsn", i.DSN(), "-parts", "facts,plans")
	cmd.Args[slices.Index(cmd.Args, "-out")+1] = "-"
	for _, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		defer w.Close()
		*to = w
	}
	require.Error(t, cmd.Run())
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), cmd.ProcessState)
	require.Equal(t, []string{"master"}, i.Databases())
}

// go passes no signal on: the test that it runs must be told.
func TestAnInterruptionReachesWhatAChildStarts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := &hour{root: t.TempDir()}
	var said string
	err := h.child(ctx, nil, func(out io.Reader) error {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			said += line
			if err != nil {
				return nil
			}
			cancel()
		}
	}, "sh", "-c", `sh -c 'trap "echo told; exit 1" INT; echo ready; while :; do sleep 0.01; done'; exit 1`)
	require.Error(t, err)
	require.Equal(t, "ready\ntold\n", said)
}

// Without a daemon there is no container, and only one error.
func TestAContainerThatNeverRanIsNotLeft(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte("#!/bin/sh\necho no daemon >&2\nexit 1\n"), 0o755))
	cmd := process(t, "-docker", "2022")
	cmd.Env = append(cmd.Env, "PATH="+folder+":"+os.Getenv("PATH"))
	out, _ := cmd.CombinedOutput()
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), "no daemon")
	require.NotContains(t, string(out), "might be left")
}

// A second Ctrl-C in the terminal does not reach what removes the container.
func TestDockerHasAGroupOfItsOwn(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte("#!/bin/sh\nkill -0 -$$ && echo own\n"), 0o755))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	out, err := docker(t.Context(), "rm")
	require.NoError(t, err)
	require.Equal(t, "own", out)
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
