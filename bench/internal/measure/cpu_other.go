//go:build !unix

package measure

import "time"

// CPUTime is not known here; reports show 0.
func CPUTime() time.Duration { return 0 }
