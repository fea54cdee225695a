//go:build !race

package histories_test

const raceDetector = false
