//go:build race

package guarantees

// slowness: SQLite, which is Go here, takes some twenty times as long with the
// race detector.
const slowness = 2
