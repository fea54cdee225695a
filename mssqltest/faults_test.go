package mssqltest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
)

func contains(part string) func(mssqltest.Request) bool {
	return func(r mssqltest.Request) bool { return strings.Contains(r.Text, part) }
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
		s := start(t, "CREATE TABLE dbo.orders (id int IDENTITY PRIMARY KEY, body nvarchar(50) NOT NULL)")
		add := func() error {
			_, err := s.DB().Exec("INSERT dbo.orders (body) OUTPUT inserted.id VALUES (@p1)", "x")
			return err
		}
		c.fault.Match, c.fault.Skip = contains("INSERT dbo.orders"), 1
		struck := s.Inject(c.fault)
		require.NoError(t, add())
		err := add()
		require.Error(t, err)
		require.Equal(t, c.fault.Error, number(err))
		<-struck.Fired()
		var stored int
		require.NoError(t, s.DB().QueryRow("SELECT COUNT(*) FROM dbo.orders").Scan(&stored))
		require.Equal(t, 1+c.stored, stored, "%v", c.fault.At)
		require.NoError(t, add())
	}
}

func TestAnIgnoredRequestIsAnsweredAndDoesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY)")
	s.Inject(mssqltest.Fault{Match: contains("FULLTEXT"), Ignore: true})
	_, err := s.DB().Exec("INSERT dbo.t VALUES (1); CREATE FULLTEXT CATALOG texts")
	require.NoError(t, err)
	var n int
	require.NoError(t, s.DB().QueryRow("SELECT COUNT(*) FROM dbo.t").Scan(&n))
	require.Zero(t, n)
	_, err = s.DB().Exec("CREATE FULLTEXT CATALOG texts")
	require.Error(t, err, "the fault has struck once")
}

func TestHooksAndFaultsDoNotReplaceEachOther(t *testing.T) {
	t.Parallel()
	s := start(t, "CREATE TABLE dbo.t (id int PRIMARY KEY)")
	own := errors.New("of the hook")
	s.SetHooks(mssqltest.Hooks{Applied: func(context.Context, mssqltest.Statement) error {
		return &mssqltest.Error{Number: 50001, State: 1, Class: 16, Message: own.Error()}
	}})
	s.Inject(mssqltest.Fault{At: mssqltest.Started, Error: 1205})
	_, err := s.DB().Exec("INSERT dbo.t VALUES (1)")
	require.Equal(t, int32(1205), number(err))
	_, err = s.DB().Exec("INSERT dbo.t VALUES (1)")
	require.ErrorContains(t, err, own.Error())
	s.SetHooks(mssqltest.Hooks{})
	_, err = s.DB().Exec("INSERT dbo.t VALUES (1)")
	require.NoError(t, err)
}

func TestOnRequestSeesTheTextOfEachRequest(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	s := mssqltest.Start(t, mssqltest.Options{OnRequest: func(r mssqltest.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Text)
	}})
	_, err := s.DB().Exec("CREATE PROCEDURE dbo.p AS SELECT 1")
	require.NoError(t, err)
	tx, err := s.DB().Begin()
	require.NoError(t, err)
	_, err = tx.Exec("SELECT @p1", 1)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	tx, err = s.DB().Begin()
	require.NoError(t, err)
	_, err = tx.Exec("dbo.p")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	mu.Lock()
	defer mu.Unlock()
	seen = slices.DeleteFunc(seen, func(text string) bool { return strings.HasPrefix(text, "select 1") }) // pings of the driver
	require.Equal(t, []string{
		"CREATE PROCEDURE dbo.p AS SELECT 1",
		"BEGIN TRANSACTION", "SELECT @p1", "ROLLBACK", "BEGIN TRANSACTION", "dbo.p", "COMMIT",
	}, seen)
}

// In a bubble no time passes between the failover and the login that it refuses.
func TestAFailoverCutsConnectionsAndRefusesLoginsForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, failover)
}

func failover(t *testing.T) {
	s := mssqltest.Start(t, mssqltest.Options{Clock: mssqltest.Stopped(), InMemory: true})
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
