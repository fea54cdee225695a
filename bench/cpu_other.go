//go:build !unix

package main

import "time"

// cpuTime is not known here; reports show 0.
func cpuTime() time.Duration { return 0 }
