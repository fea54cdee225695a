package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneCauseIsRedrivenAfterATrialRun(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		testdb.Send(w, q, testdb.Texts("a", "b", "c", "d")...)
		for i, l := range testdb.Lease(w, q, 4, time.Minute) {
			if i == 3 {
				require.NoError(t, l.Ack())
				continue
			}
			require.NoError(t, l.Nack(chanq.DeadLetter(errors.New("no stock for 7"))))
		}
		command := func(cause string, change chanqadmin.Change) string {
			var out strings.Builder
			require.NoError(t, command(w.Soon(), w.DB, &out, cause, change))
			return out.String()
		}
		trial, run := chanqadmin.Change{DryRun: true}, chanqadmin.Change{PerSecond: 2}
		require.Regexp(t, `^rejected [0-9a-f]{16}: 3, such as "no stock for 7"\n$`, command("", trial))
		require.Equal(t, "0 are ready again\n", command("expired", run))
		require.Equal(t, "3 dead messages are rejected\n", command("rejected", trial))
		require.Equal(t, "2 redriven\n3 redriven\n3 are ready again\n", command("rejected", run))
		stats, err := testdb.Admin(q).Stats(w.Soon())
		require.NoError(t, err)
		require.Equal(t, chanqadmin.Stats{Ready: 3, Limit: chanqadmin.StatsLimit}, chanqadmin.Stats{Ready: stats.Ready, Dead: stats.Dead, Limit: stats.Limit})
	})
}

func TestACountAtItsLimitIsMarked(t *testing.T) {
	require.Equal(t, "3", count(3, false))
	require.Equal(t, "at least 10000", count(10_000, true))
}
