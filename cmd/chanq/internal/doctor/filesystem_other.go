//go:build !linux

package doctor

// fileSystem is not known here.
var fileSystem = func(string) (network string, known bool) { return "", false }
