package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheErrorOfAnUnknownValueListsTheKnownOnes(t *testing.T) {
	for _, c := range []struct{ flag, value, known string }{
		{"-engine", "oracle", "sqlite, postgres, sqlserver"},
		{"-strategies", "raw,fast", "raw, raw-3conn, chanq, raw-pipe, chanq-pipe, best, limit, single, updlock-readpast"},
		{"-send", "post", "channel, batch"},
		{"-format", "xml", "table, json"},
	} {
		t.Run(c.flag, func(t *testing.T) {
			_, err := parse("throughput", []string{c.flag, c.value}, io.Discard)
			require.ErrorContains(t, err, c.known)
		})
	}
}

func TestAllInvalidFlagsAreReportedTogether(t *testing.T) {
	_, err := parse("throughput", []string{"-n", "0", "-body", "-1", "-batch", "513", "-rounds", "0", "-strategies", "raw,raw", "more"}, io.Discard)
	for _, wrong := range []string{"-n is 0", "-body is -1", "-batch is 513", "-rounds is 0", "raw twice", `"more"`} {
		require.ErrorContains(t, err, wrong)
	}
}

func TestFlagsOfAnotherEngineAreRefused(t *testing.T) {
	_, err := parse("throughput", []string{"-dsn", "sqlserver://h"}, io.Discard)
	require.ErrorContains(t, err, "-dsn is for -engine postgres and sqlserver")
	_, err = parse("throughput", []string{"-engine", "sqlserver", "-db", "x", "-dsn", "sqlserver://h"}, io.Discard)
	require.ErrorContains(t, err, "-db is for -engine sqlite")
	_, err = parse("throughput", []string{"-engine", "sqlserver"}, io.Discard)
	require.ErrorContains(t, err, "needs -dsn")
}

func TestAnInvalidFlagLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	err := run(t.Context(), []string{
		"-db", filepath.Join(dir, "x.db"), "-cpuprofile", filepath.Join(dir, "cpu"), "-strategies", "fast",
	}, io.Discard, io.Discard)
	require.Error(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestAnExistingFileIsNeverChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.db")
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	err := run(t.Context(), []string{"-db", path, "-n", "10"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "must not exist")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))
}
