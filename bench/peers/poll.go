package main

import (
	"context"
	"time"
)

// pollEvery is short compared with every phase, and long compared with one poll.
const pollEvery = 2 * time.Millisecond

// poll calls look until done. It is for systems that do not report when a completion
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
