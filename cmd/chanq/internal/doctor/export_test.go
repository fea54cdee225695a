package doctor

import "testing"

// SetFileSystem makes every file appear to be on a network file system, until the test ends.
func SetFileSystem(t *testing.T, network string) {
	before := fileSystem
	fileSystem = func(string) (string, bool) { return network, true }
	t.Cleanup(func() { fileSystem = before })
}
