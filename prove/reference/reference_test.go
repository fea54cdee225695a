package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pages follow the code. Reading the files of the command makes the cache of test results know them.
func TestTheReferenceIsThatOfTheCode(t *testing.T) {
	t.Chdir("../..")
	require.NoError(t, filepath.WalkDir("cmd/chanq", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			_, err = os.ReadFile(path)
		}
		return err
	}))
	all, err := pages()
	require.NoError(t, err)
	require.Len(t, all, 4)
	for name, text := range all {
		page, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		require.True(t, text == string(page), "%s/%s is not that of the code: run go run ./prove/reference", folder, name)
	}
}

func TestACommentIsReadInParts(t *testing.T) {
	fields, err := fieldsOf("../..", "ProducerConfig")
	require.NoError(t, err)
	require.Equal(t, "BatchRows`, `BatchBytes", fields[0].name)
	require.Equal(t, "500 and 4 MiB", fields[0].standard)
	require.Equal(t, "1 to 512, and 1 byte to 32 MiB", fields[0].bounds)
}
