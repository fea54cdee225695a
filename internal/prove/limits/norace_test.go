//go:build !race

package limits_test

const slower = 1

// slowness stretches deadlines that statements must meet.
const slowness = 1
