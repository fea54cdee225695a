//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package embedded

import (
	"errors"
	"time"
)

// pipe is not implemented for this system: SQLite is polled.
type pipe struct{}

func openPipe(string, string) (*pipe, error)    { return nil, errors.ErrUnsupported }
func openOwnPipe(string, string) (*pipe, error) { return nil, errors.ErrUnsupported }
func writePipe(string, []byte) bool             { return false }
func removeUnused(string)                       {}
func isTimeout(error) bool                      { return false }

func (*pipe) read(time.Duration) (int, error)            { return 0, errors.ErrUnsupported }
func (*pipe) rest() int                                  { return 0 }
func (*pipe) isThere() bool                              { return false }
func (*pipe) close()                                     {}
func (*pipe) remove()                                    {}
func (*pipe) readAll([]byte, time.Duration) (int, error) { return 0, errors.ErrUnsupported }
