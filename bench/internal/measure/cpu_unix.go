//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that this process has used. On a shared machine it varies less than
// wall-clock time.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
