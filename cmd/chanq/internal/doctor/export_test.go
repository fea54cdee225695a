package doctor

import "testing"

// SetFileSystem has every file be on a file system of another machine, until the test ends.
func SetFileSystem(t *testing.T, network string) {
	before := fileSystem
	fileSystem = func(string) (string, bool) { return network, true }
	t.Cleanup(func() { fileSystem = before })
}
