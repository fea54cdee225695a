//go:build race

package limits_test

// slower is the divisor of the work that SQLite and the emulator, which are written in Go, get
// under the race detector. The check runs the depth tests of this package once without it.
const slower = 25
