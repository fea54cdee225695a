//go:build !unix

package measure

import "time"

// CPUTime is unknown on this system; reports show 0.
func CPUTime() time.Duration { return 0 }
