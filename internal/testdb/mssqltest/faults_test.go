package mssqltest_test

import (
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/testdb/mssqltest"
	"github.com/chanq/chanq/internal/testdb/mssqltest/tds"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

func TestEveryStatementOfTheHotPathIsKnownByItsText(t *testing.T) {
	t.Parallel()
	for _, q := range []sqlbatch.Queue{sqlserver.Dialect.Queue(names), sqlserver.Dialect.Queue(names).InTx()} {
		for kind, st := range map[mssqltest.Kind]sqlbatch.Statement{
			mssqltest.Enqueue:    q.Enqueue(makeRows(5, 0)),
			mssqltest.EnqueueNew: q.EnqueueNew(makeRows(1, 0)),
			mssqltest.Find:       q.Find(nil, nil),
			mssqltest.Claim:      q.Claim(claimTen),
			mssqltest.NextDue:    q.NextDue(),
			mssqltest.Ack:        q.Ack(nil),
			mssqltest.Archive:    q.Archive(nil),
			mssqltest.Nack:       q.Nack(nil),
			mssqltest.Release:    q.Release(nil),
			mssqltest.Bury:       q.Bury(nil),
			mssqltest.Extend:     q.Extend(nil, time.Second),
			mssqltest.Other:      q.Stats(10),
		} {
			r := &tds.Request{Kind: tds.RPC, Proc: "sp_executesql", Params: []tds.Param{{Value: st.Args[0]}}}
			require.Equal(t, kind, mssqltest.RequestOf(r).Kind)
		}
	}
}

func TestAFaultLeavesWhatItsMomentSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault  mssqltest.Fault
		stored int
	}{
		{mssqltest.Fault{At: mssqltest.Received, Reset: true}, 0},
		{mssqltest.Fault{At: mssqltest.Received, Error: 40501}, 0},
		{mssqltest.Fault{At: mssqltest.Started, Reset: true}, 0},
		{mssqltest.Fault{At: mssqltest.Started, Error: 1205}, 0},
		{mssqltest.Fault{At: mssqltest.Applied, Reset: true}, 0},
		{mssqltest.Fault{At: mssqltest.Applied, Error: 1205}, 0},
		{mssqltest.Fault{At: mssqltest.Answered, Reset: true}, 1},
		{mssqltest.Fault{At: mssqltest.Answered, Error: 40197}, 1},
	} {
		q := newQueue(t, mssqltest.Options{})
		c.fault.Match, c.fault.Skip = mssqltest.Is(mssqltest.Enqueue), 1
		struck := q.Inject(c.fault)
		q.exec(q.Enqueue(makeRows(1, 0)))
		st := q.Enqueue(makeRows(1, 0))
		_, err := q.DB().Exec(st.Text, st.Args...)
		require.Error(t, err)
		require.Equal(t, c.fault.Error, number(err))
		<-struck.Fired()
		stats := q.rows(q.Stats(10))[0]
		require.Equal(t, int64(1+c.stored), stats[0], "%v", c.fault.At)
		q.exec(q.Enqueue(makeRows(1, 0)))
	}
}

func TestAFailoverCutsConnectionsAndRefusesLoginsForAWhile(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{})
	conn, err := q.DB().Conn(t.Context())
	require.NoError(t, err)
	q.DB().SetMaxIdleConns(0)
	q.Failover(t, time.Second)
	require.Error(t, conn.PingContext(t.Context()))
	_ = conn.Close()
	var refused mssql.Error
	require.ErrorAs(t, q.DB().Ping(), &refused)
	require.Equal(t, int32(40613), refused.Number)
	require.Eventually(t, func() bool { return q.DB().Ping() == nil }, 5*time.Second, 10*time.Millisecond)
}
