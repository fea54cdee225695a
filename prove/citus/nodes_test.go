// Package citus_test tests the guarantees for more than one node of Citus. The tests of every
// engine cover the rest.
package citus_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Schemas are assigned to the workers in turn.
func TestATransactionHasTheMessagesOfSeveralSchemasOrNone(t *testing.T) {
	testdb.Citus.Require(t)
	first := testdb.New(t, testdb.Citus)
	queues := []*chanq.Queue[string]{first.Queue("work", chanq.Config{})}
	for range 2 {
		other := testdb.New(t, testdb.Citus)
		other.Queue("work", chanq.Config{})
		schema, err := pgtest.Schema(other.Address)
		require.NoError(t, err)
		queues = append(queues, testdb.OpenOn[string](first, first.DB, "work", chanq.Config{Schema: schema}))
	}
	send := func(end func(*sql.Tx) error) {
		tx, err := first.DB.BeginTx(first.Soon(), nil)
		require.NoError(t, err)
		for _, q := range queues {
			_, err := q.SendTx(first.Soon(), tx, chanq.Message[string]{Body: "m"})
			require.NoError(t, err)
		}
		require.NoError(t, end(tx))
	}
	requireReady := func(n int) {
		for _, q := range queues {
			stats, err := testdb.Admin(q).Stats(first.Soon())
			require.NoError(t, err)
			require.Equal(t, n, stats.Ready)
		}
	}
	send((*sql.Tx).Rollback)
	requireReady(0)
	send((*sql.Tx).Commit)
	requireReady(1)
}

// Every node draws its own numbers, so only one node can determine which message is older.
func TestAnOrderedQueueIsRefusedThroughAnotherNodeThanTheCoordinator(t *testing.T) {
	testdb.CitusElsewhere.Require(t)
	w := testdb.New(t, testdb.CitusElsewhere)
	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}
	db := w.Open()
	name, err := pgtest.Schema(w.Address)
	require.NoError(t, err)
	cfg.Schema = name
	require.NoError(t, chanq.Migrate(w.Soon(), pgtest.CitusCoordinator(t), "lines", cfg))
	_, err = chanq.Open[string](w.Soon(), db, "lines", cfg)
	require.ErrorContains(t, err, "connect to the coordinator")
}
