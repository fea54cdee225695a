package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestATreeIsASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTree()
		model := map[string]*record{}
		for range rapid.IntRange(1, 3000).Draw(t, "steps") {
			// The pattern of a queue: ascending inserts, deletions anywhere.
			key := fmt.Sprintf("%04d", rapid.IntRange(0, 999).Draw(t, "key"))
			if rapid.IntRange(0, 2).Draw(t, "action") == 0 {
				_, has := model[key]
				require.Equal(t, has, tr.remove(key))
				delete(model, key)
			} else {
				_, has := model[key]
				r := &record{}
				require.Equal(t, !has, tr.put(key, r))
				model[key] = r
			}
		}
		requireSame(t, tr, model)
	})
}

func TestATreeOfAMillionStaysSortedWhenItsHeadGoes(t *testing.T) {
	tr := newTree()
	const n = 200_000
	key := func(i int) string { return fmt.Sprintf("%08d", i) }
	for i := range n {
		tr.put(key(i), &record{id: uint64(i)})
	}
	for i := range n - 1000 {
		require.True(t, tr.remove(key(i)))
	}
	require.Equal(t, 1000, tr.count)
	c := cursor{t: tr}
	full, rec := c.after("", true)
	require.Equal(t, key(n-1000), full)
	require.EqualValues(t, n-1000, rec.id)
	full, _ = c.end()
	require.Equal(t, key(n-1), full)
}

func requireSame(t require.TestingT, tr *tree, model map[string]*record) {
	keys := make([]string, 0, len(model))
	for k := range model {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	require.Equal(t, len(keys), tr.count)
	c := cursor{t: tr}
	i := 0
	for full, rec := c.after("", true); rec != nil; full, rec = c.after(full, false) {
		require.Equal(t, keys[i], full)
		require.Same(t, model[full], rec)
		i++
	}
	require.Equal(t, len(keys), i)
	for full, rec := c.end(); rec != nil; full, rec = c.before(full) {
		i--
		require.Equal(t, keys[i], full)
	}
	require.Zero(t, i)
}

func TestACursorSurvivesChanges(t *testing.T) {
	tr := newTree()
	for i := range 1000 {
		tr.put(fmt.Sprintf("%04d", i*2), &record{})
	}
	c := cursor{t: tr}
	full, _ := c.after("0500", true)
	require.Equal(t, "0500", full)
	tr.put("0501", &record{})
	tr.remove("0502")
	full, _ = c.after(full, false)
	require.Equal(t, "0501", full)
	full, _ = c.after(full, false)
	require.Equal(t, "0504", full)
}
