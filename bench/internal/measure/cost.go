package measure

import (
	"runtime"
	"time"
)

// Cost is the total cost of a phase.
type Cost struct {
	Seconds    float64 // wall-clock time
	CPU        float64 // CPU seconds of this process; 0 if unknown
	ServerCPU  float64 // of the database's processes; set by the caller, 0 if unknown
	Statements float64
	Allocs     float64
}

// Of runs f after a garbage collection and returns its cost. statements returns a count so far.
func Of(statements func() int64, f func() error) (c Cost, err error) {
	runtime.GC() // earlier garbage is not part of the measurement
	var before, after runtime.MemStats
	asked := statements()
	runtime.ReadMemStats(&before)
	cpu, start := CPUTime(), time.Now()
	err = f()
	c.Seconds, c.CPU = time.Since(start).Seconds(), (CPUTime() - cpu).Seconds()
	runtime.ReadMemStats(&after)
	c.Statements, c.Allocs = float64(statements()-asked), float64(after.Mallocs-before.Mallocs)
	return c, err
}
