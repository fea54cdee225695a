package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/chanq/chanq/bench/internal/measure"
)

// growthAxis is one quantity that can grow, and its measurement.
type growthAxis struct {
	name  string // also of the flag for its sizes
	sizes string // the flag's default
	// The allowed sizes.
	least, most int
	about       string
	// begin prepares the data for all sizes. It returns the measurement of one size in one round,
	// and the removal of the data.
	begin func(ctx context.Context, o options, axis string, sizes []int) (growthRun, error)
}

// growthRun measures one size once: a result for each strategy. end may be nil.
type growthRun struct {
	measure func(ctx context.Context, size int) ([]measure.Result, error)
	end     func() error
}

var growthAxes = []growthAxis{
	{"backlog", "1000,10000,100000,1000000,5000000", 0, 1e8, "ready messages in the table", beginTables},
	{"leased", "0,1000,10000,100000,1000000", 0, 1e8, "leased messages in the table", beginTables},
	{"scheduled", "0,1000,10000,100000,1000000", 0, 1e8, "scheduled messages in the table", beginTables},
	{"consumers", "1,2,4,8,16", 1, 100, "consumers of one process", beginConsumers},
	{"processes", "1,2,4", 1, 100, "processes with a consumer each", beginProcesses},
	{"purge", "10000,1000000", 1, 1e8, "ready messages that one call deletes", beginOperation},
	{"redrive", "10000,1000000", 1, 1e8, "dead messages that one call makes ready", beginOperation},
	{"trim", "10000,1000000", 1, 1e8, "done messages that are no longer kept", beginOperation},
	{"bodies", "100,1000,10000,100000,1048576", 0, maxBody, "bytes of a body", beginBodies},
	{"batches", "1,10,50,100,250,500", 1, maxBatch, "rows of a statement", beginBatches},
	{"lingers", "1,2,5,10,20", 1, 60_000, "ProducerConfig.Linger in milliseconds, with 64 goroutines in Send", beginLingers},
	{"prefetch", "100,1000,10000", 1, 100_000, "leases that a consumer holds: heap", beginPrefetch},
	{"buffer", "1048576,4194304,16777216", 1, 1 << 30, "ProducerConfig.BufferBytes, full: heap", beginBuffer},
}

func axisNames() []string {
	names := make([]string, len(growthAxes))
	for i, a := range growthAxes {
		names[i] = a.name
	}
	return names
}

// measureGrowth measures every size of an axis in every round, so that other load on the machine
// affects all sizes. Round 0 is not reported.
func measureGrowth(ctx context.Context, o options, report func(measure.Result)) error {
	for _, axis := range growthAxes {
		sizes := o.growth[axis.name]
		if !slices.Contains(o.axes, axis.name) || len(sizes) == 0 {
			continue
		}
		if err := measureAxis(ctx, o, axis, sizes, report); err != nil {
			return fmt.Errorf("growth of %s: %w", axis.name, err)
		}
	}
	return nil
}

func measureAxis(ctx context.Context, o options, axis growthAxis, sizes []int, report func(measure.Result)) (err error) {
	run, err := axis.begin(ctx, o, axis.name, sizes)
	if run.end != nil {
		defer func() { err = errors.Join(err, run.end()) }()
	}
	if err != nil {
		return err
	}
	for round := range o.rounds + 1 {
		for i := range sizes {
			size := sizes[(i+round)%len(sizes)]
			if err := ctx.Err(); err != nil {
				return err
			}
			results, err := run.measure(ctx, size)
			if err != nil {
				return fmt.Errorf("size %s: %w", strconv.Itoa(size), err)
			}
			for _, r := range results {
				if round > 0 {
					r.Round, r.Axis, r.Size = round, axis.name, size
					report(r)
				}
			}
		}
	}
	return nil
}
