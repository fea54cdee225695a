//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// group lets a process start in a group of its own, so that an interruption reaches what it starts, too: go does not pass signals on. kill
// ends what is left of the group.
func group(cmd *exec.Cmd) (kill func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	return func() {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // no such group: all have ended
		}
	}
}
