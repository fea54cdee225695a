//go:build race

package testdb

// Slowness: SQLite and the emulator, which are Go code here, take about twenty times as long with the race detector.
const Slowness = 2
