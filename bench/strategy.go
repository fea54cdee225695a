package main

import (
	"context"
	"math/rand/v2"
)

// strategy is one way to move messages through a queue's table. Each of its
// methods begins with no connection and ends with nothing under way, so that
// its time is all that the way costs.
type strategy interface {
	// enqueue stores the bodies and returns when all are in the database.
	enqueue(ctx context.Context, bodies [][]byte) error
	// drain takes n messages and returns when the last one's settle is in the
	// database.
	drain(ctx context.Context, n int) error
	// pipeline does both, at once where the strategy can.
	pipeline(ctx context.Context, bodies [][]byte) error
}

// strategies by name, in the order of reports.
var strategies = []struct {
	name string
	make func(options, *store) (strategy, error)
}{
	{"raw", func(o options, s *store) (strategy, error) { return bareLoop{s, o.batch}, nil }},
	{"chanq", newChannels},
	{"single", func(o options, s *store) (strategy, error) { return bareLoop{s, 1}, nil }},
}

// makeBodies makes n bodies that do not compress, the same in every run.
func makeBodies(n, size int) [][]byte {
	random := rand.NewChaCha8([32]byte{})
	all := make([]byte, n*size)
	_, _ = random.Read(all) // never fails
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = all[i*size : (i+1)*size : (i+1)*size]
	}
	return bodies
}
