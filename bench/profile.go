package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// The rates of the contention profiles: one of five events of contended mutexes, and each block of
// 10 µs, or one per 10 µs of shorter ones. Their cost does not change the shape of a run.
const (
	mutexFraction = 5
	blockRate     = 10_000 // ns
)

// startProfiles starts the requested profiles; finish writes them.
func startProfiles(o options) (finish func() error, err error) {
	var cpu *os.File
	if o.cpuProfile != "" {
		if cpu, err = os.Create(o.cpuProfile); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	if o.mutexProfile != "" {
		runtime.SetMutexProfileFraction(mutexFraction)
	}
	if o.blockProfile != "" {
		runtime.SetBlockProfileRate(blockRate)
	}
	return func() error {
		var errs []error
		if cpu != nil {
			pprof.StopCPUProfile()
			errs = append(errs, cpu.Close())
		}
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
		if o.memProfile != "" {
			runtime.GC() // completes the profile up to the last collection
		}
		for _, p := range []struct{ kind, path string }{
			{"allocs", o.memProfile}, {"mutex", o.mutexProfile}, {"block", o.blockProfile},
		} {
			if p.path != "" {
				errs = append(errs, writeProfile(p.kind, p.path))
			}
		}
		return errors.Join(errs...)
	}, nil
}

func writeProfile(kind, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(kind).WriteTo(file, 0), file.Close())
}
