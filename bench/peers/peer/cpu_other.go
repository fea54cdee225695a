//go:build !unix

package peer

import "time"

// cpuTime is not known here; reports show 0.
func cpuTime() time.Duration { return 0 }
