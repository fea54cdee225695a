//go:build !race

package limits_test

const slower = 1
