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
		var out strings.Builder
		require.NoError(t, command(w.Soon(), w.DB, &out, nil))
		require.Regexp(t, `^rejected [0-9a-f]{16}: 3, such as "no stock for 7"\n$`, out.String())
		out.Reset()
		require.NoError(t, command(w.Soon(), w.DB, &out, []string{"expired", "2"}))
		require.Equal(t, "0 dead messages are expired\n0 are ready again\n", out.String())
		out.Reset()
		require.NoError(t, command(w.Soon(), w.DB, &out, []string{"rejected", "2"}))
		require.Equal(t, "3 dead messages are rejected\n2 redriven\n3 redriven\n3 are ready again\n", out.String())
		stats, err := testdb.Admin(q).Stats(w.Soon())
		require.NoError(t, err)
		require.Equal(t, chanqadmin.Stats{Ready: 3, Limit: chanqadmin.StatsLimit}, chanqadmin.Stats{Ready: stats.Ready, Dead: stats.Dead, Limit: stats.Limit})
	})
}
