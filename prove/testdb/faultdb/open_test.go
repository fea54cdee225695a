package faultdb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb/faultdb"
)

func TestOpenRowsAndTransactionsAreCounted(t *testing.T) {
	c, db := open(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	stmt, err := conn.PrepareContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	rows, err := tx.Query("SELECT 1")
	require.NoError(t, err)
	require.Equal(t, faultdb.Open{Conns: 1, Stmts: 1, Rows: 1, Txs: 1}, c.Open())
	require.NoError(t, rows.Close())
	require.NoError(t, tx.Rollback())
	require.NoError(t, stmt.Close())
	require.Equal(t, faultdb.Open{Conns: 1}, c.Open())
	require.NoError(t, conn.Close())
	require.NoError(t, db.Close())
	require.Equal(t, faultdb.Open{}, c.Open())
}

func TestAStatementMayComeAfterAnother(t *testing.T) {
	c, db := open(t)
	next(c, faultdb.Exec, faultdb.After("PRAGMA query_only = 1"))
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.ErrorContains(t, err, "readonly")
	next(c, faultdb.Exec, faultdb.After("PRAGMA query_only = 0"))
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	next(c, faultdb.Exec, faultdb.After("nonsense"))
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.ErrorContains(t, err, "nonsense")
}

func TestTextsAreRewritten(t *testing.T) {
	c, db := open(t)
	c.Rewrite(func(text string) string { return strings.ReplaceAll(text, "one", "1") })
	_, err := db.Exec("INSERT INTO t VALUES (one)")
	require.NoError(t, err)
	stmt, err := db.Prepare("INSERT INTO t VALUES (one)")
	require.NoError(t, err)
	_, err = stmt.Exec()
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM t WHERE n = one").Scan(&n))
	require.Equal(t, 2, n)
}
