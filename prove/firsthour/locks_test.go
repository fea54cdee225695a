package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// TestTheRecordedLocksAreThoseOfTheEmulator writes the table with -update: review the difference.
func TestTheRecordedLocksAreThoseOfTheEmulator(t *testing.T) {
	s, err := connect(t.Context(), emulated(t).DSN(), "chanq_firsthour")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	h := &hour{server: s, report: newReport(t.Context(), &bytes.Buffer{})}
	all := map[string]string{}
	for _, d := range []*database{{suffix: "locks"}, {suffix: "versions", versions: true}, {suffix: "ordered", versions: true, slots: 16}} {
		require.NoError(t, s.create(t.Context(), d))
		found, _, err := h.locksOf(t.Context(), d)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		for name, locks := range found {
			all[lockKey(d, name)] = locks
		}
	}
	if *update {
		var b strings.Builder
		b.WriteString("# The locks that each statement keeps until the end of its transaction, on the emulator (package mssqltest), with\n" +
			"# READ_COMMITTED_SNAPSHOT off and on. Part 3 of prove/firsthour compares a server with them.\n" +
			"# Made by: go test ./prove/firsthour -run Locks -update\n")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&b, "%s: %s\n", name, all[name])
		}
		require.NoError(t, os.WriteFile("testdata/locks.txt", []byte(b.String()), 0o644))
	}
	require.Len(t, all, 2*len(lockedStatements)+len(orderedStatements))
	text, err := os.ReadFile("testdata/locks.txt")
	require.NoError(t, err)
	recorded, err := readLocks(string(text))
	require.NoError(t, err)
	require.Equal(t, recorded, all, "if the change is meant, run with -update and review the file")
}

func TestOtherLocksAreADifference(t *testing.T) {
	report := differs(t, "locks", answers("FROM sys.dm_tran_locks", instance.Answer{Rows: [][]any{{"OBJECT", int64(1), "IX"}}}))
	require.Contains(t, report, "| 4 rows | **DIFFERS** |")
}

// A claim whose walk reads with UPDLOCK returns the same rows, and keeps the locks of the entries: those are locks more than were recorded.
func TestALockMoreIsSeen(t *testing.T) {
	s, err := connect(t.Context(), emulated(t).DSN(), "chanq_firsthour")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	d := &database{suffix: "locks"}
	require.NoError(t, s.create(t.Context(), d))
	require.NoError(t, d.migrate(t.Context()))
	_, err = d.prepare(t.Context())
	require.NoError(t, err)
	names, err := namesOf(t.Context(), d)
	require.NoError(t, err)
	st := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: queue}).Claim(claim(3, false))
	recorded, err := readLocks(recordedLocks)
	require.NoError(t, err)
	seen, err := locksDuring(t.Context(), d.db, names, st)
	require.NoError(t, err)
	require.Equal(t, recorded[lockKey(d, "claim 3 of 4")], seen)
	text := st.Args[0].(string)
	st.Args[0] = strings.ReplaceAll(text, "READPAST, READCOMMITTEDLOCK", "READPAST, UPDLOCK")
	require.NotEqual(t, text, st.Args[0])
	seen, err = locksDuring(t.Context(), d.db, names, st)
	require.NoError(t, err)
	require.Contains(t, seen, "KEY of chanq_orders, IX due U")
}
