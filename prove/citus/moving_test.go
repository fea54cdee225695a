package citus_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// As the rebalancer moves it, in both of its ways: with writes that wait for the whole move, and with logical
// replication, where they wait for its end.
func TestNothingIsLostWhileASchemaMoves(t *testing.T) {
	testdb.Citus.Require(t)
	for _, way := range []string{"block_writes", "force_logical"} {
		t.Run(way, func(t *testing.T) {
			w := testdb.New(t, testdb.Citus)
			w.Within(5 * time.Minute)
			q := w.Queue("work", chanq.Config{})
			schema, err := pgtest.Schema(w.Address)
			require.NoError(t, err)
			y := start(w, q)
			coordinator := pgtest.CitusMover(t) // the programs' lock_timeout would end the move
			from, _, _ := place(w, coordinator, schema)
			for range 2 {
				y.flows(w)
				y.pauses()
				before, host, port := place(w, coordinator, schema)
				began := time.Now()
				_, err = coordinator.ExecContext(w.Soon(), `SELECT citus_schema_move($1, $2, $3::int, shard_transfer_mode := $4::citus.shard_transfer_mode)`, schema, host, port, way)
				require.NoError(t, err)
				took := time.Since(began)
				after, _, _ := place(w, coordinator, schema)
				require.NotEqual(t, before, after)
				y.flows(w)
				send, ack := y.pauses()
				t.Logf("moved in %v; nothing was sent for %v, nothing acked for %v", took.Round(time.Millisecond), send.Round(time.Millisecond), ack.Round(time.Millisecond))
			}
			back, _, _ := place(w, coordinator, schema)
			require.Equal(t, from, back)
			y.check(w)
		})
	}
}

// place returns the node of a schema, and another worker.
func place(w *testdb.World, coordinator *sql.DB, schema string) (node int, otherHost string, otherPort int) {
	w.Helper()
	require.NoError(w, coordinator.QueryRowContext(w.Soon(), `SELECT DISTINCT nodeport FROM citus_shards WHERE table_name::text LIKE $1 || '.%'`, schema).Scan(&node))
	require.NoError(w, coordinator.QueryRowContext(w.Soon(), `SELECT nodename, nodeport FROM pg_dist_node WHERE groupid <> 0 AND nodeport <> $1 LIMIT 1`, node).Scan(&otherHost, &otherPort))
	return node, otherHost, otherPort
}
