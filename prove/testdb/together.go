package testdb

import (
	"flag"
	"strconv"
)

// Together runs n parallel tests of a package at once, unless -parallel sets the number: tests that mostly wait, for
// leases or pauses to end, need not be limited to the number of processors. Call it from TestMain.
func Together(n int) {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		_ = flag.Set(parallel, strconv.Itoa(n))
	}
}
