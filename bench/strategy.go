package main

import (
	"context"
	"math/rand/v2"
	"slices"
)

// strategy is one way to move messages through a table. Each of its methods begins without a
// connection and ends with nothing in progress, so that its time is the total cost.
type strategy interface {
	// enqueue stores the bodies and returns when all are in the database.
	enqueue(ctx context.Context, bodies [][]byte) error
	// drain takes n messages, adds each to the store's tally, and returns when the last settle is in
	// the database.
	drain(ctx context.Context, n int) error
	// pipeline does both, concurrently if the strategy can.
	pipeline(ctx context.Context, bodies [][]byte) error
}

// strategyKind is a strategy with its name.
type strategyKind struct {
	name    string
	engines []string // the engines that have it
	slow    bool     // at least one statement per message: measured with fewer messages
	batch   func(options) int
	make    func(context.Context, options, *store) (strategy, error)
}

var (
	allEngines = []string{"sqlite", "postgres", "sqlserver"}
	servers    = []string{"postgres", "sqlserver"}
)

// strategies are in the order of reports.
var strategies = append([]strategyKind{
	{"raw", allEngines, false, options.rows, newBareLoop},
	{"raw-3conn", servers, false, options.rows, newBareCrew},
	{"chanq", allEngines, false, options.rows, newChannels},
	{"raw-pipe", allEngines, false, options.rows, newBarePipe},
	{"chanq-pipe", allEngines, false, options.rows, newPipe},
	{"best", []string{"sqlite", "postgres"}, false, options.rows, newBest},
	{"limit", []string{"postgres"}, false, options.rows, newLimit},
	{"single", allEngines, true, one, newSingle},
}, articleStrategies()...)

func (o options) rows() int { return o.batch }
func one(options) int       { return 1 }

func strategyNames() []string {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		names[i] = s.name
	}
	return names
}

func strategiesOf(engine string) (names []string) {
	for _, s := range strategies {
		if slices.Contains(s.engines, engine) {
			names = append(names, s.name)
		}
	}
	return names
}

func findStrategy(name string) strategyKind {
	return strategies[slices.Index(strategyNames(), name)]
}

// makeBodies returns n incompressible bodies, the same in every run.
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
