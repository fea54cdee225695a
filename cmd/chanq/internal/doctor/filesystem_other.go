//go:build !linux

package doctor

// fileSystem is unknown on this system.
var fileSystem = func(string) (network string, known bool) { return "", false }
