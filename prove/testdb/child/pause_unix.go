//go:build unix

package child

import "syscall"

// Pause stops the child with a signal; Resume lets it continue.
func (p *Process) Pause() error  { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
