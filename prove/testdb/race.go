//go:build race

package testdb

// Slowness: SQLite and the emulator, which are Go here, take some twenty times as
// long with the race detector.
const Slowness = 2
