//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
)

// A stopped process reads no bytes, so that other processes receive them. A killed process has no open
// pipe.
func TestAProcessThatIsStoppedOrKilledDelaysNothing(t *testing.T) {
	t.Parallel()
	s := share(t)
	stuck := s.reader()
	s.pass()
	s.settle(200 * time.Millisecond) // the process is idle
	stop(t, stuck.PID())
	defer func() { require.NoError(t, stuck.Kill()) }() // the process could not end otherwise
	other := s.reader()
	for range 10 {
		s.pass()
		s.settle(30 * time.Millisecond)
	}
	require.NoError(t, syscall.Kill(stuck.PID(), syscall.SIGCONT))
	for range 10 {
		s.pass()
	}
	s.settle(200 * time.Millisecond)
	require.NoError(t, other.Kill())
	for range 10 {
		s.pass()
		s.settle(30 * time.Millisecond)
	}
}

// stop stops a process, and waits until it is stopped: before that it may read a byte that is for another
// process.
func stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
}

// The process detects this within a second, and finds messages that were sent before at its next poll.
func TestARemovedPipeOfAnIdleConsumerIsCreatedAgain(t *testing.T) {
	testdb.Long(t) // bounds real time
	s := share(t)
	s.reader()
	s.pass()
	s.settle(200 * time.Millisecond)
	require.NoError(t, os.RemoveAll(s.path+"-notify"))
	began := time.Now()
	s.pass()
	require.Less(t, time.Since(began), time.Minute)
	s.pass()
}

// Without pipes, SQLite is polled.
func TestAMessageArrivesSoonWithoutPipes(t *testing.T) {
	t.Parallel()
	s := share(t)
	require.NoError(t, os.WriteFile(s.path+"-notify", nil, 0o600))
	s.reader()
	s.pass()
	for i := range 10 {
		s.settle(time.Duration(i) * 10 * time.Millisecond)
		s.pass()
	}
}
