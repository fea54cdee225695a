//go:build !race

package testdb

// Slowness is the factor of this build by which short leases and deadlines are lengthened.
const Slowness = 1
