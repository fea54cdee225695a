package repository

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// The public constants are literals, so that go doc prints their values.
func TestPublicConstantsAreThoseOfTheEngine(t *testing.T) {
	require.EqualValues(t, sqlbatch.PriorityLow, chanq.PriorityLow)
	require.EqualValues(t, sqlbatch.PriorityUrgent, chanq.PriorityUrgent)
	require.Equal(t, table.CountLimit, chanqadmin.StatsLimit)
	require.Equal(t, []chanq.Cause{
		sqlbatch.CauseExhausted, sqlbatch.CauseRejected, sqlbatch.CauseExpired, sqlbatch.CauseUndecodable,
		sqlbatch.CauseUnreadable, sqlbatch.CauseKilled, sqlbatch.CauseOutput,
	}, []chanq.Cause{
		chanq.CauseExhausted, chanq.CauseRejected, chanq.CauseExpired, chanq.CauseUndecodable,
		chanq.CauseUnreadable, chanq.CauseKilled, chanq.CauseOutput,
	})
}
