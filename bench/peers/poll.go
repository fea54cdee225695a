package main

import (
	"context"
	"time"
)

// pollEvery is short against every phase, and long against one look.
const pollEvery = 2 * time.Millisecond

// poll looks until done. It is for systems that do not tell when a completion
// is committed.
func poll(ctx context.Context, look func() (done bool, err error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
