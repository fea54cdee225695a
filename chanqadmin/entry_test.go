package chanqadmin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

func TestStatsAndEntriesAreReadableInJSON(t *testing.T) {
	t.Parallel()
	stats := chanqadmin.Stats{Ready: 1, Scheduled: 2, Leased: 3, Dead: 4, Done: 5, Limit: 6, OldestReady: 90 * time.Second, Paused: true}
	text, err := json.Marshal(stats)
	require.NoError(t, err)
	require.JSONEq(t, `{"ready":1,"scheduled":2,"leased":3,"dead":4,"done":5,"limit":6,"oldest_ready_ns":90000000000,"paused":true}`, string(text))
	var again chanqadmin.Stats
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, stats, again)

	at := time.UnixMilli(1_700_000_000_123).In(time.FixedZone("east", 3600))
	full := chanqadmin.Entry{
		ID: chanq.ID{1}, State: chanqadmin.StateLeased, Priority: chanq.PriorityHigh, Attempts: 2, Fence: 3, EnqueuedAt: at, DueAt: at.Add(time.Second), LeaseUntil: at.Add(time.Minute),
		ExpiresAt: at.Add(time.Hour), Consumer: chanq.ID{2}, LeasedBy: "host", DedupKey: "k", LastError: "e", Headers: map[string]string{"a": "b"}, Body: []byte("<text>"), Size: 6,
	}
	text, err = json.Marshal(chanqadmin.Entry{ID: chanq.ID{1}, State: chanqadmin.StateDead, Priority: chanq.PriorityLow, EnqueuedAt: at, EndedAt: at, Body: []byte{0xFF, 0}, Size: 2})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"01000000-0000-0000-0000-000000000000","state":"dead","priority":"low","attempt":0,"fence":0,"enqueued_at":"2023-11-14T22:13:20.123Z","ended_at":"2023-11-14T22:13:20.123Z","size":2,"body_base64":"/wA="}`, string(text))
	text, err = json.Marshal(full)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"01000000-0000-0000-0000-000000000000","state":"leased","priority":"high","attempt":2,"fence":3,
		"enqueued_at":"2023-11-14T22:13:20.123Z","due_at":"2023-11-14T22:13:21.123Z","lease_until":"2023-11-14T22:14:20.123Z","expires_at":"2023-11-14T23:13:20.123Z",
		"consumer":"02000000-0000-0000-0000-000000000000","leased_by":"host","dedup_key":"k","last_error":"e","headers":{"a":"b"},"size":6,"body":"<text>"}`, string(text))
}

func TestAnEntryWithoutItsBodyIsNotOneWithAnEmptyBody(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{0: true, 3: false} {
		text, err := json.Marshal(chanqadmin.Entry{State: chanqadmin.StateReady, Key: "k", Slot: 3, Size: size})
		require.NoError(t, err)
		require.Contains(t, string(text), `"key":"k","slot":3`)
		require.Equal(t, want, strings.Contains(string(text), `"body":""`), "%s", text)
		require.ErrorContains(t, json.Unmarshal(text, &chanqadmin.Entry{}), "lacks some of its fields")
	}
}

func TestADeadMessageWithUnreadableHeadersIsListed(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, chanq.Migrate(t.Context(), db, "orders", chanq.Config{}))
	q, err := chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
	require.NoError(t, err)
	p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
	require.NoError(t, err)
	_, err = p.Send(t.Context(), chanq.Message[string]{Body: "kept", Headers: map[string]string{"a": "b"}})
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	_, err = db.Exec("UPDATE chanq_orders SET headers = CAST('{\"a\":\"x\",\"b\":1}' AS BLOB)")
	require.NoError(t, err)
	c, err := q.Consume(t.Context(), chanq.ConsumerConfig{StopWhenIdle: true})
	require.NoError(t, err)
	_, open := <-c.C()
	require.False(t, open)
	require.NoError(t, c.Shutdown(t.Context()))
	dead, err := testdb.Peek(t.Context(), q, chanqadmin.StateDead, 1)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, "kept", string(dead[0].Body))
	require.Contains(t, dead[0].LastError, "headers")
	require.Equal(t, map[string]string{"": `{"a":"x","b":1}`}, dead[0].Headers, "none of them, rather than some")
}
