package demo_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/cmd/chanq/internal/demo"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The emulator runs the demo in place of SQL Server.
func onSQLServer(t *testing.T, files int) (*fixture, *mssqltest.Server) {
	t.Helper()
	f := newFixture(t, files)
	server := mssqltest.Start(t, mssqltest.Options{})
	f.db, f.opt.Dialect = server.DB(), sqlserver.Dialect
	return f, server
}

func TestEveryFileIsCountedOnceOnSQLServer(t *testing.T) {
	files := testdb.Of(200, 700)
	f, _ := onSQLServer(t, files)
	require.Equal(t, demo.Result{Verified: files}, f.run(t))
	f.write(t, "another", "content")
	require.Equal(t, demo.Result{Verified: files}, f.run(t))
	require.Contains(t, f.said.String(), "verifying again")
	f.opt.Fresh = true
	require.Equal(t, demo.Result{Verified: files + 1}, f.run(t))
}

func TestAnInterruptedDemoContinuesOnSQLServer(t *testing.T) {
	files := testdb.Of(400, 1500)
	f, _ := onSQLServer(t, files)
	ctx, interrupt := context.WithCancel(t.Context())
	f.opt.Progress, f.opt.Prefetch = &meter{after: 100, then: interrupt}, 50 // so that a busy machine does not finish earlier
	_, err := demo.Run(ctx, f.db, f.opt)
	require.ErrorIs(t, err, demo.ErrInterrupted)
	f.opt.Progress = &meter{}
	require.Equal(t, demo.Result{Verified: files}, f.run(t))
	require.Contains(t, f.said.String(), "going on: ")
}

// For each kind of transaction, two of three commits lose their connection: one before it is
// applied, one after, and six in all, as often as one transaction is repeated. The first statement
// identifies the kind.
func TestCommitsOfUnknownOutcomeCountOnce(t *testing.T) {
	f, server := onSQLServer(t, 600)
	inner, err := mssql.NewConnector(server.DSN())
	require.NoError(t, err)
	faulty := faultdb.New(inner)
	kinds, commits, struck := map[int]string{}, map[string]int{}, 0
	faulty.Inject(func(op faultdb.Op) faultdb.Fault {
		switch op.Kind {
		case faultdb.Begin:
			kinds[op.Conn] = ""
		case faultdb.Exec, faultdb.Query:
			if kinds[op.Conn] == "" {
				kinds[op.Conn] = op.Text
				if op.Text == "sp_executesql" {
					kinds[op.Conn] = op.Args[0].Value.(string)
				}
			}
		case faultdb.Commit:
			broken := faultdb.Cut(errors.New("the connection broke"))
			kind := kinds[op.Conn]
			if commits[kind] == 9 {
				break
			}
			commits[kind]++
			switch commits[kind] % 3 {
			case 1:
				struck++
				return broken.Applied()
			case 2:
				struck++
				return broken
			}
		}
		return faultdb.Fault{}
	})
	f.db = sql.OpenDB(faulty)
	defer f.db.Close()
	require.Equal(t, demo.Result{Verified: 600}, f.run(t))
	require.GreaterOrEqual(t, len(commits), 3, "listing, hashing, collecting")
	require.Greater(t, struck, 4)
}
