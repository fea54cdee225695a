//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package embedded

import (
	"context"
	"time"
)

// fileLock is not built for this system: its processes poll, as SQLite has them do.
type fileLock struct{ path string }

func (*fileLock) lock(context.Context, time.Duration) bool { return false }
func (*fileLock) unlock()                                  {}
func (*fileLock) close()                                   {}
