package sqlkind_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb/sqlkind"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestEveryStatementOfTheHotPathIsKnownByItsText(t *testing.T) {
	t.Parallel()
	all := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	message := []sqlbatch.Row{{ID: [16]byte{1}, Body: []byte("x")}}
	for _, q := range []sqlbatch.Queue{all, all.InTx()} {
		for kind, st := range map[sqlkind.Kind]sqlbatch.Statement{
			sqlkind.Enqueue:    q.Enqueue(message),
			sqlkind.EnqueueNew: q.EnqueueNew(message),
			sqlkind.Find:       q.Find(nil, nil),
			sqlkind.Rescue:     q.Rescue(sqlbatch.RescueParams{}),
			sqlkind.Contents:   q.Contents(sqlbatch.Item{}),
			sqlkind.Claim:      q.Claim(sqlbatch.ClaimParams{Rows: 10, Lease: time.Minute, Inline: sqlbatch.MaxBody}),
			sqlkind.NextDue:    q.NextDue(sqlbatch.Heads{}),
			sqlkind.Rescan:     q.Rescan(),
			sqlkind.Ack:        q.Ack(nil),
			sqlkind.Archive:    q.Archive(nil),
			sqlkind.Nack:       q.Nack(nil),
			sqlkind.Release:    q.Release(nil),
			sqlkind.DeadLetter: q.DeadLetter(nil),
			sqlkind.Extend:     q.Extend([16]byte{}, nil, time.Second),
			sqlkind.Other:      q.Stats(10),
		} {
			require.Equal(t, kind, sqlkind.Of(mssqltest.Request{Text: st.Args[0].(string)}))
		}
	}
}
