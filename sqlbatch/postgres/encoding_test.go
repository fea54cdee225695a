package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// A role or a database might have a client_encoding of its own. A driver that ignores it would send and receive wrong
// texts, or fail if the encoding lacks a character.
func TestTextsDoNotDependOnTheSessionsEncoding(t *testing.T) {
	for _, encoding := range []string{"LATIN1", "WIN1252", "EUC_JP", "UTF8"} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
			t.Run(encoding+" "+mode.String(), func(t *testing.T) {
				config := pgtest.Config(t)
				plain := stdlib.OpenDB(*config)
				t.Cleanup(func() { plain.Close() })
				config = config.Copy()
				config.RuntimeParams["client_encoding"] = encoding
				config.DefaultQueryExecMode = mode
				db := stdlib.OpenDB(*config)
				t.Cleanup(func() { db.Close() })
				names := sqlbatch.Names{Queue: "orders"}
				testdb.MigrateTables(t, postgres.Dialect, db, names)
				q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}
				reader := &serverQueue{T: t, db: plain, ctx: t.Context(), Queue: q.Queue}
				var found string
				require.NoError(t, db.QueryRow(`SHOW client_encoding`).Scan(&found))
				require.Equal(t, encoding, found)

				const key, text = "é€日本🙂", "naïve €日本🙂"
				q.enqueue(sqlbatch.Row{ID: id(1), Key: key}, sqlbatch.Row{ID: id(2), Key: "é"})
				require.Empty(t, q.ids(db, q.EnqueueNew([]sqlbatch.Row{{ID: id(3), Key: key}, {ID: id(4), Key: "é"}})))
				require.Equal(t, [][]any{{q.rows(db, q.Look([][16]byte{id(1)}))[0][0], key, int64(0)}}, q.rows(db, q.Find(nil, []string{key})))
				require.Equal(t, key, reader.get(1)["dedup_key"])
				require.Len(t, q.rows(db, q.Join(sqlbatch.Consumer{ID: consumer, Name: text, Host: text, For: time.Hour})), 0)
				consumer := reader.rows(plain, q.Consumers())[0]
				require.Equal(t, []any{text, text}, consumer[1:3])
				require.Equal(t, consumer, q.rows(db, q.Consumers())[0])

				require.Equal(t, key, q.claimed(claimOf(10))[1].Key)
				require.Equal(t, text, q.get(1)["holder"])
				require.Len(t, q.settled(db, q.Nack([]sqlbatch.NackItem{{Item: q.item(1), Error: text}})), 1)
				require.Equal(t, text, q.get(1)["last_error"])
				require.Equal(t, text, reader.get(1)["last_error"])
				require.Equal(t, reader.rows(plain, q.Browse(sqlbatch.Ready, 10, nil, sqlbatch.Filter{})), q.rows(db, q.Browse(sqlbatch.Ready, 10, nil, sqlbatch.Filter{})))
				require.Equal(t, []byte{1}, q.claim(db, 10))
				require.Len(t, q.settled(db, q.DeadLetter([]sqlbatch.DeadLetterItem{{Item: q.item(1), Error: "€"}})), 1)
				require.Equal(t, "€", reader.get(1)["last_error"])
				require.Equal(t, []byte{1}, q.ids(db, q.Redrive(10, nil, sqlbatch.Window{})))
				require.Equal(t, key, q.get(1)["dedup_key"])
				require.Empty(t, q.rows(db, q.Problems()))

				_, err := suite.Rows(q.ctx, db, q.Queue.Enqueue([]sqlbatch.Row{{ID: id(1)}}))
				require.Equal(t, "duplicate", postgres.Dialect.Classify(err).String(), "%v", err)
			})
		}
	}
}

// SQL_ASCII is no encoding: PostgreSQL stores any bytes.
func TestAClaimReturnsAKeyOfInvalidText(t *testing.T) {
	db := pgtest.Encoding(t, "SQL_ASCII")
	names := sqlbatch.Names{Queue: "orders"}
	testdb.MigrateTables(t, postgres.Dialect, db, names)
	q := &serverQueue{T: t, db: db, ctx: t.Context(), Queue: postgres.Dialect.Queue(names)}
	require.Empty(t, q.rows(db, q.Problems()))
	q.enqueue(sqlbatch.Row{ID: id(1), Key: "é€"})
	q.exec(`INSERT INTO chanq_orders (id, dedup_key, last_error, body) VALUES ($1, convert_from('\xff'::bytea, 'SQL_ASCII'), convert_from('\xfe'::bytea, 'SQL_ASCII'), '')`, fmt.Sprintf("%x", id(2)))
	require.Equal(t, "\xfe", q.get(2)["last_error"])
	rows := q.claimed(claimOf(10))
	require.Equal(t, []any{"é€", "\xff"}, []any{rows[1].Key, rows[2].Key})
	require.Len(t, q.rows(db, q.Find([][16]byte{id(2)}, []string{"é€"})), 2)
}
