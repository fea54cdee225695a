//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/embedded"
)

// In a directory that other users can write to, the names of the lock files may be in use.
func TestAForeignFileInPlaceOfALockFileIsNotChanged(t *testing.T) {
	for name, plant := range map[string]func(victim, name string) error{
		"symbolic link": os.Symlink,
		"hard link":     os.Link,
		"dangling link": func(victim, name string) error { return os.Symlink(victim+"-missing", name) },
		"directory":     func(_, name string) error { return os.Mkdir(name, 0o700) },
		"pipe":          func(_, name string) error { return syscall.Mkfifo(name, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "queue.db")
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Chmod(path, 0o666))
			for _, suffix := range []string{"-turn", "-next"} {
				victim := filepath.Join(dir, "victim"+suffix)
				require.NoError(t, os.WriteFile(victim, []byte("secret"), 0o600))
				require.NoError(t, plant(victim, path+suffix))
			}
			victim := filepath.Join(dir, "victim-turn")
			db, err := embedded.Open(path)
			require.NoError(t, err)
			defer db.Close()
			_, err = db.Exec("CREATE TABLE t (n INTEGER)")
			require.NoError(t, err, "without the lock, processes poll")
			give, ok := embedded.TakeWriterLock(path)
			give()
			require.Equal(t, name == "hard link", ok, "only an ordinary file is a lock")
			for _, file := range []string{victim, path + "-turn"} {
				info, err := os.Stat(file)
				if name == "dangling link" && file != victim {
					require.ErrorIs(t, err, os.ErrNotExist, "no file is created where the link points")
					continue
				}
				require.NoError(t, err)
				require.Zero(t, info.Mode().Perm()&0o077, "%s: its mode is unchanged", file)
			}
		})
	}
}

func TestLockFilesHaveTheModeOfTheDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o666))
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	for _, suffix := range []string{"-turn", "-next"} {
		info, err := os.Stat(path + suffix)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "despite the umask")
	}
}
