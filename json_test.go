package chanq_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

func TestStatsAndEntriesAreReadableInJSONAndComeBack(t *testing.T) {
	t.Parallel()
	stats := chanq.Stats{Ready: 1, Scheduled: 2, Leased: 3, Dead: 4, Done: 5, Limit: 6, OldestReady: 90 * time.Second, Paused: true}
	text, err := json.Marshal(stats)
	require.NoError(t, err)
	require.JSONEq(t, `{"ready":1,"scheduled":2,"leased":3,"dead":4,"done":5,"limit":6,"oldest_ready":"1m30s","paused":true}`, string(text))
	var again chanq.Stats
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, stats, again)

	at := time.UnixMilli(1_700_000_000_123).UTC()
	full := chanq.Entry{
		ID: chanq.NewID(), State: chanq.StateLeased, Priority: chanq.PriorityHigh, Attempts: 2, Fence: 3, EnqueuedAt: at, DueAt: at.Add(time.Second), LeaseUntil: at.Add(time.Minute),
		ExpiresAt: at.Add(time.Hour), Member: chanq.NewID(), LeasedBy: "host", DedupKey: "k", LastError: "e", Headers: map[string]string{"a": "b"}, Body: []byte("<text>"),
	}
	for _, e := range []chanq.Entry{
		full,
		{ID: chanq.NewID(), State: chanq.StateDead, Priority: chanq.PriorityLow, EnqueuedAt: at, EndedAt: at, Body: []byte{0xFF, 0}},
	} {
		text, err := json.Marshal(e)
		require.NoError(t, err)
		var again chanq.Entry
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, e, again)
	}
	text, err = json.Marshal(full)
	require.NoError(t, err)
	require.Contains(t, string(text), `"priority":"high","attempt":2,"fence":3,"enqueued_at":"2023-11-14T22:13:20.123Z"`)
}
