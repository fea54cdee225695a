package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// CitusVariable is the environment variable with the connection string of a Citus coordinator, and of one of its
// databases in which all nodes were added. Nodes are reached at the addresses of citus_add_node, and the role has a
// lock_timeout, as described in docs/operate/citus.md; the owner of the extension has none. compose.yaml starts such a cluster.
const CitusVariable = "CHANQ_TEST_CITUS"

// CitusSchema returns the connection string of that database with a new distributed schema for the test as its
// search_path. It is dropped when the test ends. Without a cluster the test is skipped.
//
// Databases would have to be created on every node, while Citus distributes schemas, except public.
func CitusSchema(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv(CitusVariable)
	if dsn == "" {
		t.Skipf("NOT TESTED on Citus: %s is not set (compose.yaml starts a cluster: docker compose --profile citus up)", CitusVariable)
	}
	dsn = with(dsn, "lock_timeout", "0") // only for this session; the setting is for sessions between the nodes
	name := fmt.Sprintf("chanq_test_%d_%d", os.Getpid(), databases.Add(1))
	run(t, dsn, `SET citus.enable_schema_based_sharding TO on`, `CREATE SCHEMA `+name)
	t.Cleanup(func() { run(t, dsn, `DROP SCHEMA `+name+` CASCADE`) })
	return with(dsn, "search_path", name)
}

// CitusElsewhere is CitusSchema through a worker that does not have the schema.
func CitusElsewhere(t testing.TB) string {
	t.Helper()
	return throughWorker(t, `n.groupid NOT IN (`+schemaGroups+`)`)
}

// CitusHolder is CitusSchema through the worker that has the schema.
func CitusHolder(t testing.TB) string {
	t.Helper()
	return throughWorker(t, `n.groupid IN (`+schemaGroups+`)`)
}

// schemaGroups selects the nodes that have the schema of a session.
const schemaGroups = `SELECT p.groupid FROM pg_dist_shard AS h JOIN pg_dist_placement AS p USING (shardid) WHERE h.logicalrelid = 'anchor'::regclass`

// throughWorker is CitusSchema through a worker n that meets a condition.
func throughWorker(t testing.TB, condition string) string {
	t.Helper()
	dsn := CitusSchema(t)
	run(t, dsn, `CREATE TABLE anchor ()`) // a schema without a table is on no node
	conn := connect(t, dsn)
	defer conn.Close(context.Background())
	var host, port string
	require.NoError(t, conn.QueryRow(context.Background(), `SELECT n.nodename, n.nodeport::text FROM pg_dist_node AS n
WHERE n.groupid <> 0 AND `+condition+`
LIMIT 1`).Scan(&host, &port), "the cluster has two workers")
	return with(with(dsn, "host", host), "port", port)
}

// CitusTables returns the address of the same schema through the coordinator, the only node that creates and drops
// tables.
func CitusTables(dsn string) (string, error) {
	schema, err := Schema(dsn)
	if err != nil {
		return "", err
	}
	return with(with(os.Getenv(CitusVariable), "lock_timeout", "0"), "search_path", schema), nil
}

// CitusCoordinator opens the database through the coordinator.
func CitusCoordinator(t testing.TB) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(with(os.Getenv(CitusVariable), "lock_timeout", "0"))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	return db
}

// CitusMover opens the database through the coordinator as a superuser without a lock_timeout, which
// can move schemas that are in use.
func CitusMover(t testing.TB) *sql.DB {
	t.Helper()
	coordinator := with(os.Getenv(CitusVariable), "lock_timeout", "0")
	name := fmt.Sprintf("chanq_test_mover_%d_%d", os.Getpid(), databases.Add(1))
	run(t, coordinator, `CREATE ROLE `+name+` SUPERUSER LOGIN`)
	config, err := pgx.ParseConfig(with(coordinator, "user", name))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() {
		db.Close()
		run(t, coordinator, `DROP ROLE `+name)
	})
	return db
}

// Schema returns the first schema of the search_path in a connection string, "" if it has none.
func Schema(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return config.RuntimeParams["search_path"], nil
}

// with returns a connection string with another setting.
func with(dsn, name, value string) string {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return fmt.Sprintf("%s %s=%s", dsn, name, value) // the last value counts
	}
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + name + "=" + value
}

func run(t testing.TB, dsn string, texts ...string) {
	t.Helper()
	conn := connect(t, dsn)
	defer conn.Close(context.Background())
	for _, text := range texts {
		_, err := conn.Exec(context.Background(), text)
		require.NoError(t, err, text)
	}
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	require.NoError(t, err)
	return conn
}
