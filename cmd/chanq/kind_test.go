package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
)

func newOrdered(t *testing.T) (db string) {
	db = filepath.Join(t.TempDir(), "queue.db")
	succeed(t, "", "migrate", "--db", db, "--ordered", "--slots", "2", "pay")
	return db
}

func TestAnOrderedQueueIsOperatedAsAPlainOne(t *testing.T) {
	db := newOrdered(t)
	for _, body := range []string{"1", "2", "3"} {
		succeed(t, "", "send", "--db", db, "--key", "k", "pay", body)
	}
	require.Contains(t, succeed(t, "", "peek", "--db", db, "pay").out, "KEY")
	for _, line := range succeed(t, "", "peek", "--db", db, "-o", "json", "pay").lines() {
		require.Contains(t, line, `"key":"k"`)
	}
	succeed(t, "", "migrate", "--db", db, "pay")
	succeed(t, "", "migrate", "--db", db, "--ordered", "--dead-key", "holds", "pay")
	require.Contains(t, succeed(t, "", "stats", "--db", db, "pay").out, "3")
	require.Equal(t, exitFailed, runIn(t.Context(), "", "migrate", "--db", db, "--ordered", "--slots", "3", "pay").status)
	require.Contains(t, succeed(t, "", "purge", "--db", db, "--yes", "--state", "ready", "pay").out, "3")
	succeed(t, "", "drop", "--db", db, "pay")
}

func TestStatsShowTheSlotsOfOrderedQueues(t *testing.T) {
	db := newOrdered(t)
	succeed(t, "", "migrate", "--db", db, "mail")
	succeed(t, "", "send", "--db", db, "--key", "k", "pay", "a", "b")
	var list []queueSlots
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "stats", "--db", db, "--slots", "-o", "json").out), &list))
	require.Len(t, list, 1, "mail has none")
	require.Equal(t, "pay", list[0].Queue)
	require.Len(t, list[0].Slots, 2)
	found := chanqadmin.SlotStats{}
	for _, s := range list[0].Slots {
		if s.Messages > 0 {
			found = s
		}
	}
	found.Slot, found.Oldest = 0, 0
	require.Equal(t, chanqadmin.SlotStats{Messages: 2, TopKey: "k", TopKeyMessages: 2}, found)
	require.Contains(t, succeed(t, "", "stats", "--db", db, "--slots", "pay").out, "MOST OF KEY")
}

func TestFlagsOfOrderedQueuesGoTogether(t *testing.T) {
	db := filepath.Join(t.TempDir(), "queue.db")
	for _, flags := range [][]string{{"--slots", "2"}, {"--dead-key", "shuts"}, {"--ordered", "--slots", "1025"}, {"--ordered", "--slots", "-1"}} {
		require.Equal(t, exitUsage, runIn(t.Context(), "", append([]string{"migrate", "--db", db, "pay"}, flags...)...).status, "%v", flags)
		require.Equal(t, exitUsage, runIn(t.Context(), "", append([]string{"schema", "--dialect", "sqlite", "pay"}, flags...)...).status, "%v", flags)
	}
	require.NoFileExists(t, db)
	require.Contains(t, succeed(t, "", "schema", "--dialect", "sqlite", "--ordered", "--slots", "2", "pay").out, "chanq__slots")
	require.NotContains(t, succeed(t, "", "schema", "--dialect", "sqlite", "pay").out, "order_key")
	succeed(t, "", "migrate", "--db", db, "mail")
	failed := runIn(t.Context(), "", "send", "--db", db, "--key", "k", "mail", "x")
	require.Equal(t, exitFailed, failed.status)
	require.Contains(t, failed.err, "must be empty, since queue mail is plain")
}
