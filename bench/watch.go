package main

import "time"

// watch reads the clock on the wall and the processors' time of this process.
type watch struct {
	start time.Time
	cpu   time.Duration
}

func startWatch() watch { return watch{time.Now(), cpuTime()} }

func (w watch) read() (seconds, cpu float64) {
	seconds = time.Since(w.start).Seconds()
	return seconds, (cpuTime() - w.cpu).Seconds()
}
