package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Microsoft's programs run once a week (.ci/run witness). What they are asked is tested here.
func TestTheTextsAreCollected(t *testing.T) {
	sets, err := collect("../..")
	require.NoError(t, err)
	require.Len(t, sets, 4)
	plain, ordered, documents, programs := sets[0].texts, sets[1].texts, sets[2].texts, sets[3].texts
	require.Contains(t, plain["claim"], "SELECT TOP (@left)")
	require.Contains(t, plain["ddl-0-migration-3-03"], "CREATE TABLE")
	require.NotContains(t, ordered, "claim", "only plain queues claim so")
	require.Contains(t, ordered["take-slots"], "chanq__slots")
	require.Contains(t, documents["rights"], "GRANT")
	for _, kind := range []string{"sqlserver-", "strategy_article_", "plans-", "locks-", "deadlocks-"} {
		found := false
		for name := range programs {
			found = found || strings.HasPrefix(name, kind)
		}
		require.True(t, found, kind)
	}
	for name, text := range programs {
		require.NotContains(t, text, "{}", name)
	}
}

func TestEachPlantedErrorHasAPlace(t *testing.T) {
	sets, err := collect("../..")
	require.NoError(t, err)
	require.Len(t, planted, 3)
	for _, p := range planted {
		spoilt, err := p.plant(sets)
		require.NoError(t, err, p.what)
		require.NotEqual(t, sets[0].texts[p.text], spoilt.texts[p.text])
		require.Less(t, len(spoilt.texts), len(sets[0].texts), "its tables, and no other statement")
	}
	_, err = plant{"nothing", "claim", "no such text", ""}.plant(sets)
	require.ErrorContains(t, err, "to spoil")
}
