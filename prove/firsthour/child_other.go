//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// group passes an interruption to the process. The console of Windows passes Ctrl-C to all of its processes.
func group(cmd *exec.Cmd) (kill func()) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return func() {}
}
