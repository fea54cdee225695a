//go:build race

package limits_test

// slower is by how much SQLite and the emulator, which are Go here, are given
// less to do under the race detector. The check runs this package's depth tests
// once without it.
const slower = 25
