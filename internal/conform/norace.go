//go:build !race

package conform

// slowness of this build, by which short leases are lengthened.
const slowness = 1
