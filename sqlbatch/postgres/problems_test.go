package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// There pgx writes parameters into the text, and refuses to do so in other encodings: the first statement must have a
// parameter, or the first send would fail.
func TestProblemsReportsADriverThatSendsNoParameters(t *testing.T) {
	config := pgtest.Config(t)
	config.RuntimeParams["client_encoding"] = "LATIN1"
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db := stdlib.OpenDB(*config)
	defer db.Close()
	q := &serverQueue{T: t, db: db, ctx: t.Context()}
	_, err := suite.Rows(q.ctx, db, postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"}).Problems())
	require.ErrorContains(t, err, "client_encoding=UTF8")
}

func TestProblemsReportsADatabaseThatCannotHoldAllText(t *testing.T) {
	db := pgtest.Encoding(t, "LATIN1")
	q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(sqlbatch.Names{Queue: "orders"})}
	require.Equal(t, [][]any{{sqlbatch.ProblemEncoding, "the database's encoding is LATIN1, and chanq needs UTF8"}}, q.rows(db, q.Problems()))
}

func TestProblemsReportsTablesOfThePreviousVersion(t *testing.T) {
	q := newQueue(t)
	require.Empty(t, q.rows(q.db, q.Problems()))
	q.exec(`DROP TABLE chanq_orders`)
	require.Empty(t, q.rows(q.db, q.Problems()), "it works without tables")
	q.exec(`CREATE TABLE chanq_orders (id uuid PRIMARY KEY, lapses int, type text)`)
	require.Empty(t, q.rows(q.db, q.Problems()))
	q.exec(`ALTER TABLE chanq_orders DROP COLUMN type`)
	require.Equal(t, [][]any{{sqlbatch.ProblemForm, `the table "public"."chanq_orders" has no column type`}}, q.rows(q.db, q.Problems()))
	q.exec(`ALTER TABLE chanq_orders DROP COLUMN lapses`)
	require.Len(t, q.rows(q.db, q.Problems()), 2)
	nowhere := postgres.Dialect.Queue(sqlbatch.Names{Schema: "nowhere", Queue: "orders"})
	require.Empty(t, q.rows(q.db, nowhere.Problems()))
}

func TestProblemsReportsCommitsThatMayBeLost(t *testing.T) {
	q := newQueue(t)
	tx := q.begin()
	for _, setting := range []string{"local", "on", "remote_apply"} {
		_, err := tx.Exec(`SET LOCAL synchronous_commit = ` + setting)
		require.NoError(t, err)
		require.Empty(t, q.rows(tx, q.Problems()), setting)
	}
	_, err := tx.Exec(`SET LOCAL synchronous_commit = off`)
	require.NoError(t, err)
	require.Equal(t, [][]any{{sqlbatch.ProblemDurability, "synchronous_commit is off"}}, q.rows(tx, q.Problems()))
	_, err = tx.Exec(`SET LOCAL synchronous_commit = on; ALTER TABLE chanq_orders SET UNLOGGED`)
	require.NoError(t, err)
	require.Equal(t, [][]any{{sqlbatch.ProblemDurability, `the table "public"."chanq_orders" is not logged`}}, q.rows(tx, q.Problems()))
}

func TestProblemsReportsTablesThatHideRows(t *testing.T) {
	q := newQueue(t)
	tx := q.begin()
	exec := func(text string) {
		_, err := tx.Exec(text)
		require.NoError(t, err, text)
	}
	exec(`CREATE ROLE chanq_hidden`)
	exec(`GRANT SELECT ON chanq_orders TO chanq_hidden`)
	exec(`ALTER TABLE chanq_orders ENABLE ROW LEVEL SECURITY`)
	require.Empty(t, q.rows(tx, q.Problems()), "its owner sees all rows")
	exec(`SET LOCAL ROLE chanq_hidden`)
	require.Equal(t, [][]any{{sqlbatch.ProblemHidden, `row-level security hides rows of the table "public"."chanq_orders" from the role chanq_hidden`}}, q.rows(tx, q.Problems()))
	exec(`RESET ROLE`)
	exec(`ALTER TABLE chanq_orders__dead SET UNLOGGED`)
	require.Equal(t, [][]any{{sqlbatch.ProblemDurability, `the table "public"."chanq_orders__dead" is not logged`}}, q.rows(tx, q.Problems()))
	exec(`DROP TABLE chanq_orders__dead`)
	exec(`CREATE VIEW chanq_orders__dead AS SELECT 1 AS id`)
	require.Equal(t, [][]any{{sqlbatch.ProblemTable, `"public"."chanq_orders__dead" is not a table`}}, q.rows(tx, q.Problems()))
}

// Each node of Citus except the coordinator draws its own numbers.
func TestProblemsReportsANodeWithItsOwnSequences(t *testing.T) {
	q := newQueue(t)
	names := sqlbatch.Names{Queue: "lines", Slots: 4}
	testdb.MigrateTables(t, postgres.Dialect, q.db, names)
	lines := postgres.Dialect.Queue(names)
	require.Empty(t, q.rows(q.db, lines.Problems()))
	q.exec(`ALTER SEQUENCE chanq_lines__seq MINVALUE 281474976710657 MAXVALUE 562949953421313 START 281474976710657 RESTART`)
	found := q.rows(q.db, lines.Problems())
	require.Len(t, found, 1)
	require.Equal(t, sqlbatch.ProblemNode, found[0][0])
	require.Empty(t, q.rows(q.db, q.Problems()), "of another queue")

	for _, st := range []sqlbatch.Statement{
		lines.Enqueue([]sqlbatch.Row{{ID: id(1)}}),
		{Text: `INSERT INTO chanq_lines (body) VALUES ('')`},
	} {
		_, err := suite.Rows(q.ctx, q.db, st)
		require.ErrorContains(t, err, "bigint out of range", "without an error, the place of the message would be arbitrary")
	}
}
