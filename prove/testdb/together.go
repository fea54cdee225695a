package testdb

import (
	"flag"
	"strconv"
)

// Together has n tests of a package that ask to be parallel run at once, unless -parallel
// says how many: those that mostly wait, for leases to end or for pauses to be over, need
// not be as few as there are processors. Call it from TestMain.
func Together(n int) {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		_ = flag.Set(parallel, strconv.Itoa(n))
	}
}
