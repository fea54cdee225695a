package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneCauseIsRedrivenAfterATrialRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		require.NoError(t, chanq.Migrate(t.Context(), db, "orders", chanq.Config{}))
		orders, err := chanq.Open[string](t.Context(), db, "orders", chanq.Config{})
		require.NoError(t, err)
		_, err = orders.Send(t.Context(), chanq.Msg("a"), chanq.Msg("b"), chanq.Msg("c"), chanq.Msg("d"))
		require.NoError(t, err)
		chanqtest.Work(t, orders, func(_ context.Context, lease *chanq.Lease[string]) error {
			if lease.Body == "d" {
				return nil
			}
			return chanq.DeadLetter(errors.New("no stock for 7"))
		})
		command := func(cause string, change chanqadmin.Change) string {
			var out strings.Builder
			require.NoError(t, command(t.Context(), db, &out, cause, change))
			return out.String()
		}
		trial, run := chanqadmin.Change{DryRun: true}, chanqadmin.Change{PerSecond: 2}
		require.Regexp(t, `^rejected [0-9a-f]{16}: 3, such as "no stock for 7"\n$`, command("", trial))
		require.Equal(t, "0 are ready again\n", command("expired", run))
		require.Equal(t, "3 dead messages are rejected\n", command("rejected", trial))
		require.Equal(t, "2 redriven\n3 redriven\n3 are ready again\n", command("rejected", run))
		require.Len(t, chanqtest.Sent(t, orders), 3)
	})
}

func TestACountAtItsLimitIsMarked(t *testing.T) {
	require.Equal(t, "3", count(3, false))
	require.Equal(t, "at least 10000", count(10_000, true))
}
