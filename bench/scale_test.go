package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestManyIdleConsumersAreMeasured(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, slots := range []string{"0", "2"} {
		results := runJSON(t, "scale", "-engine", "postgres", "-dsn", dsn, "-queues", "3", "-schemas", "2", "-consumers", "4", "-processes", "2", "-slots", slots,
			"-rounds", "1", "-settle", "100ms", "-rest", "1s", "-for", "200ms", "-steps", "poll,notify-alone")
		require.Len(t, results, 2)
		for _, r := range results {
			require.Positive(t, r.N)
			require.Positive(t, r.P50)
			require.Equal(t, [3]int{3, 2, 4}, [3]int{r.Scale.Queues, r.Scale.Schemas, r.Consumers})
			require.NotEmpty(t, r.Scale.Connections)
			require.Positive(t, r.Scale.HeapPerConsumer)
			require.Zero(t, r.Scale.AskedPerS["other"], "each statement has a name: %v", r.Scale.AskedPerS)
			var text bytes.Buffer
			o, err := parse("scale", []string{"-engine", "postgres", "-dsn", dsn}, &text)
			require.NoError(t, err)
			require.NoError(t, writeScale(&text, o, []measure.Result{r}))
			require.Contains(t, text.String(), "statements a second")
		}
	}
}
