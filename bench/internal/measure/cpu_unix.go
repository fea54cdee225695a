//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPUTime is what this process has used of all processors. On a machine that is
// shared it varies less than the clock on the wall.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
