//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// If other users can write to the directory, another file may take the name of the folder as soon
// as the folder is created.
func TestAFileInPlaceOfTheFolderKeepsItsMode(t *testing.T) {
	dir := t.TempDir()
	victim, link, links := filepath.Join(dir, "victim"), filepath.Join(dir, "link"), filepath.Join(dir, "links")
	require.NoError(t, os.WriteFile(victim, nil, 0o600))
	require.NoError(t, os.Symlink(victim, link))
	require.NoError(t, os.Symlink(t.TempDir(), links))
	for _, name := range []string{link, links, victim} {
		before, err := os.Stat(name)
		require.NoError(t, err)
		require.Error(t, setMode(name, 0o777))
		after, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, before.Mode(), after.Mode(), name)
	}
	require.NoError(t, setMode(dir, 0o750))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
}
