//go:build unix

package keystorm_test

import "syscall"

// freeze stops a process where it stands; thaw lets it go on.
func freeze(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
func thaw(pid int) error   { return syscall.Kill(pid, syscall.SIGCONT) }
