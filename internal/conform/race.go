//go:build race

package conform

// slowness: SQLite, which is Go here, takes some twenty times as long with the
// race detector.
const slowness = 2
