//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package embedded

import (
	"context"
	"time"
)

// fileLock is not implemented for this system. Its processes poll for the lock, as SQLite does.
type fileLock struct{ path string }

func (*fileLock) lock(context.Context, time.Duration) bool { return false }
func (*fileLock) unlock()                                  {}
func (*fileLock) close()                                   {}
