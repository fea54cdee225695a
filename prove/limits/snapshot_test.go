package limits_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// Rows kept by an open snapshot are before the head. A claim from the head does not read them; a
// claim from the beginning does. If its page has room, a claim adds no index entry.
func TestOnPostgreSQLClaimsDoNotReadRowsKeptByASnapshot(t *testing.T) {
	testdb.Postgres.Require(t)
	w := newWorld(t, testdb.Postgres)
	const rounds, each = 20, 500
	q := w.Queue("work", chanq.Config{})
	w.Exec(`ALTER TABLE chanq_work SET (autovacuum_enabled = off)`)
	_, db := w.Connect()
	snapshot, err := db.BeginTx(w.Soon(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer snapshot.Rollback()
	var n int
	require.NoError(t, snapshot.QueryRow(`SELECT count(*) FROM chanq_work`).Scan(&n))

	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	c := testdb.Start(w, q, chanq.ConsumerConfig{})
	var last int64
	for range rounds {
		testdb.SendBy(w, p, make([]chanq.Message[string], each)...)
		for _, l := range testdb.Take(w, c, each) {
			last = max(last, l.DueAt.UnixMilli())
			require.NoError(t, l.Ack())
		}
	}
	require.NoError(t, c.Flush(w.Soon()))
	require.NoError(t, c.Shutdown(w.Soon()))
	testdb.SendBy(w, p, make([]chanq.Message[string], 100)...)

	st := w.Statements("work")
	claim := func(f sqlbatch.Heads) int {
		return buffersRead(t, w.DB, st.Claim(sqlbatch.ClaimParams{Rows: 100, Salt: 1, Inline: sqlbatch.MaxBody, Heads: f}))
	}
	w.Eventually("the claimed messages are older than claims look back", func() bool {
		var now int64
		require.NoError(t, w.DB.QueryRow(`SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint`).Scan(&now))
		return now > last+2*sqlbatch.HeadMargin.Milliseconds()
	})
	above, beginning := claim(sqlbatch.Heads{{Due: last + 1}, {Due: last + 1}, {Due: last + 1}, {Due: last + 1}}), claim(sqlbatch.Heads{})
	t.Logf("buffers for a claim of 100 after %d under a snapshot: %d from the head, %d from the beginning", rounds*each, above, beginning)
	require.Less(t, above, 100*12)
	require.Greater(t, beginning, 3*above, "the snapshot keeps the rows")
	var updated, hot int
	w.Eventually("the database has updated its statistics", func() bool {
		require.NoError(t, w.DB.QueryRow(`SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'chanq_work'`).Scan(&updated, &hot))
		return updated >= rounds*each
	})
	t.Logf("%d of %d updates did not change the indexes", hot, updated)
	require.Greater(t, hot, updated*4/5, "a page that cannot be cleaned up because of the snapshot might have no room left")
}
