package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The first program does the same on each engine, and again when it is repeated.
func TestTheShopSellsTheSameOnEveryEngine(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.Memory, testdb.EmulatorSocket, testdb.Postgres, testdb.SQLServer} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			connector, err := e.Connect(e.Create(t))
			require.NoError(t, err)
			db := chanqtest.Open(t, connector)
			for range 2 {
				require.Equal(t, "order 1: tea, attempt 1\norder 2: coffee, attempt 1\norder 3: cake, attempt 1\n", printed(t, func() {
					require.NoError(t, run(t.Context(), db))
				}))
			}
		})
	}
}

// printed returns the standard output of do.
func printed(t *testing.T, do func()) string {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = file
	do()
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return string(text)
}
