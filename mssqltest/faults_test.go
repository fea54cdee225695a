package mssqltest_test

import (
	"testing"
	"testing/synctest"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/mssqltest/tds"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// orders is a queue on an emulator, and its statements.
func orders(t *testing.T) (*mssqltest.Server, sqlbatch.Queue) {
	s := mssqltest.Start(t, mssqltest.Options{})
	require.NoError(t, chanq.Migrate(t.Context(), s.DB(), "orders", chanq.Config{}))
	return s, sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
}

func message() []sqlbatch.Row { return []sqlbatch.Row{{ID: chanq.NewID(), Body: []byte("x")}} }

func TestEveryStatementOfTheHotPathIsKnownByItsText(t *testing.T) {
	t.Parallel()
	all := sqlserver.Dialect.Queue(sqlbatch.Names{Queue: "orders"})
	for _, q := range []sqlbatch.Queue{all, all.InTx()} {
		for kind, st := range map[mssqltest.Kind]sqlbatch.Statement{
			mssqltest.Enqueue:    q.Enqueue(message()),
			mssqltest.EnqueueNew: q.EnqueueNew(message()),
			mssqltest.Find:       q.Find(nil, nil),
			mssqltest.Rescue:     q.Rescue(sqlbatch.RescueParams{}),
			mssqltest.Contents:   q.Contents(sqlbatch.Item{}),
			mssqltest.Claim:      q.Claim(sqlbatch.ClaimParams{Rows: 10, Lease: time.Minute, Inline: sqlbatch.MaxBody}),
			mssqltest.NextDue:    q.NextDue(sqlbatch.Heads{}),
			mssqltest.Rescan:     q.Rescan(),
			mssqltest.Ack:        q.Ack(nil),
			mssqltest.Archive:    q.Archive(nil),
			mssqltest.Nack:       q.Nack(nil),
			mssqltest.Release:    q.Release(nil),
			mssqltest.DeadLetter: q.DeadLetter(nil),
			mssqltest.Extend:     q.Extend([16]byte{}, nil, time.Second),
			mssqltest.Other:      q.Stats(10),
		} {
			r := &tds.Request{Kind: tds.RPC, Proc: "sp_executesql", Params: []tds.Param{{Value: st.Args[0]}}}
			require.Equal(t, kind, mssqltest.RequestOf(r).Kind)
		}
	}
}

func TestAFaultLeavesTheStateOfItsMoment(t *testing.T) {
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
		s, q := orders(t)
		run := func(st sqlbatch.Statement) error {
			_, err := s.DB().Exec(st.Text, st.Args...)
			return err
		}
		c.fault.Match, c.fault.Skip = mssqltest.Is(mssqltest.Enqueue), 1
		struck := s.Inject(c.fault)
		require.NoError(t, run(q.Enqueue(message())))
		err := run(q.Enqueue(message()))
		require.Error(t, err)
		require.Equal(t, c.fault.Error, number(err))
		<-struck.Fired()
		var stored int
		require.NoError(t, s.DB().QueryRow("SELECT COUNT(*) FROM dbo.chanq_orders").Scan(&stored))
		require.Equal(t, 1+c.stored, stored, "%v", c.fault.At)
		require.NoError(t, run(q.Enqueue(message())))
	}
}

// In a bubble no time passes between the failover and the login that it refuses.
func TestAFailoverCutsConnectionsAndRefusesLoginsForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, failover)
}

func failover(t *testing.T) {
	s := mssqltest.Start(t, mssqltest.Options{InMemory: true})
	conn, err := s.DB().Conn(t.Context())
	require.NoError(t, err)
	s.DB().SetMaxIdleConns(0)
	s.Failover(t, time.Second)
	require.Error(t, conn.PingContext(t.Context()))
	_ = conn.Close()
	var refused mssql.Error
	require.ErrorAs(t, s.DB().Ping(), &refused)
	require.Equal(t, int32(40613), refused.Number)
	require.Eventually(t, func() bool { return s.DB().Ping() == nil }, time.Minute, 10*time.Millisecond)
}
