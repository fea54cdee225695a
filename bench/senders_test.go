package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestSendersThatWaitAreComparedWithTheBareStatement(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, engine ...string) {
		t.Parallel()
		seen := map[string]float64{}
		for _, r := range runJSON(t, append([]string{"senders", "-n", "1000", "-senders", "8x1,2x50", "-rounds", "1"}, engine...)...) {
			c := crew{r.Senders, r.Batch}
			seen[c.String()+" "+r.Strategy] = r.StatementsPerMessage
			require.Equal(t, 1000, r.N)
			for _, v := range []float64{r.EnqueuePerS, r.CommitP50, r.EnqueueAllocs} {
				require.Positive(t, v)
			}
			require.GreaterOrEqual(t, r.CommitP99, r.CommitP50)
		}
		require.Len(t, seen, 4)
		require.InDelta(t, 1, seen["8x1 raw"], 1e-9)
		require.InDelta(t, 1./50, seen["2x50 raw"], 1e-9)
		require.Less(t, seen["8x1 chanq"], 0.75, "goroutines share statements")
	}
	t.Run("sqlite", func(t *testing.T) { check(t) })
	t.Run("postgres", func(t *testing.T) { check(t, "-engine", "postgres", "-dsn", pgtest.DSN(t)) })
}

func TestSendersAreComparedWithRaw(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeSenders(&out, options{}, []measure.Result{
		{Engine: "sqlite", Strategy: "chanq", Senders: 4, Batch: 100, Round: 1, EnqueuePerS: 500},
		{Engine: "sqlite", Strategy: "raw", Senders: 4, Batch: 100, Round: 1, EnqueuePerS: 1000},
	}))
	require.Regexp(t, `4x100 +raw +1000 +1\.00`, out.String())
	require.Regexp(t, `4x100 +chanq +500 +0\.50`, out.String())
}

func TestInvalidWorkersAreReported(t *testing.T) {
	for _, wrong := range []string{"4", "0x1", "4x0", "4x1x", "x"} {
		_, err := parse("senders", []string{"-senders", "4x100," + wrong}, io.Discard)
		require.ErrorContains(t, err, `"`+wrong+`" is not`)
	}
}
