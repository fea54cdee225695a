//go:build !race

package guarantees

// slowness of this build, by which short leases are lengthened.
const slowness = 1
