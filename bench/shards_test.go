package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestAQueueOverFilesIsComparedWithOneInAFile(t *testing.T) {
	results := runJSON(t, "shards", "-shards", "1,2", "-rounds", "1", "-n", "100", "-batch", "20")
	sizes := map[int]int{}
	for _, r := range results {
		require.Positive(t, min(r.EnqueuePerS, r.DrainPerS, r.PipelinePerS, r.StatementsPerMessage))
		sizes[r.Size]++
	}
	require.Equal(t, map[int]int{1: 1, 2: 1}, sizes)
	var table bytes.Buffer
	require.NoError(t, writeShards(&table, options{engine: "sqlite"}, results))
	require.Contains(t, table.String(), "against 1")
}

func TestAQueueOverSchemasIsComparedWithOneInASchema(t *testing.T) {
	results := runJSON(t, "shards", "-engine", "postgres", "-dsn", pgtest.DSN(t), "-shards", "1,2", "-rounds", "1", "-n", "100", "-batch", "20")
	require.Len(t, results, 2)
	for _, r := range results {
		require.Positive(t, min(r.EnqueuePerS, r.DrainPerS, r.PipelinePerS))
	}
}

func TestShardsWithSeparateDatabasesAreMeasured(t *testing.T) {
	err := run(t.Context(), []string{"shards", "-engine", "sqlserver", "-dsn", "sqlserver://localhost"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "-engine must be sqlite")
	err = run(t.Context(), []string{"shards", "-shards", "65"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "-shards is 65")
}
