package chanq_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

func TestIDsRiseAndKeepTheirTime(t *testing.T) {
	var mu sync.Mutex
	var made []chanq.ID
	var makers sync.WaitGroup
	before := time.Now().Truncate(time.Millisecond)
	for range 4 {
		makers.Go(func() {
			mine := make([]chanq.ID, 500)
			for i := range mine {
				mine[i] = chanq.NewID()
			}
			rises := func(a, b chanq.ID) int { return slices.Compare(a[:], b[:]) }
			if !slices.IsSortedFunc(mine, rises) {
				t.Error("an ID is not greater than the one before")
			}
			mu.Lock()
			defer mu.Unlock()
			made = append(made, mine...)
		})
	}
	makers.Wait()
	seen := map[chanq.ID]bool{}
	for _, id := range made {
		require.False(t, seen[id], "made twice")
		seen[id] = true
		require.WithinRange(t, id.Time(), before, time.Now().Add(time.Second))
		require.False(t, id.IsZero())
	}
	require.True(t, chanq.ID{}.IsZero())
}

func TestIDsAreReadAsTheyAreWritten(t *testing.T) {
	id := chanq.NewID()
	require.Len(t, id.String(), 36)
	parsed, err := chanq.ParseID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, parsed)
	text, err := json.Marshal(map[string]chanq.ID{"id": id})
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "`+id.String()+`"}`, string(text))
	var read map[string]chanq.ID
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, id, read["id"])
	for _, bad := range []string{"", "x", id.String()[1:], id.String() + "0"} {
		_, err := chanq.ParseID(bad)
		requireWords(t, err, "id")
		require.Error(t, new(chanq.ID).UnmarshalText([]byte(bad)))
	}
}
