package testdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// SQLServerVariable is the environment variable with the DSN of a login that may create databases on a real SQL Server. If it is set,
// the tests on that server run in every tier except -short, and fail if it does not answer.
const SQLServerVariable = "CHANQ_TEST_SQLSERVER"

// SQLServerPrefixVariable is what the names of those databases begin with, so that who runs tests finds what they leave. Default: chanq_test.
const SQLServerPrefixVariable = "CHANQ_TEST_SQLSERVER_PREFIX"

// snapshotVariable, set to on, sets READ_COMMITTED_SNAPSHOT on in those databases.
const snapshotVariable = "CHANQ_TEST_SQLSERVER_SNAPSHOT"

// lockingVariable, set to optimized, sets OPTIMIZED_LOCKING on in them, and what it needs (SQL Server 2025; Azure SQL always has it).
const lockingVariable = "CHANQ_TEST_SQLSERVER_LOCKING"

// serverAnswers returns why the server does not answer. It asks once per process, so that not every test waits.
var serverAnswers = sync.OnceValue(func() error {
	c, err := mssql.NewConnector(os.Getenv(SQLServerVariable))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	c.Dialer = closing{ctx}
	db := sql.OpenDB(c)
	return errors.Join(db.PingContext(ctx), db.Close())
})

// closing dials connections that are closed when its context ends. The driver waits without a limit for the greeting of a server.
type closing struct{ context.Context }

func (c closing) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		context.AfterFunc(c.Context, func() { conn.Close() })
	}
	return conn, err
}

// createDatabase creates a database on the server.
func createDatabase(t testing.TB) string {
	Engine{Name: "sqlserver", Needs: SQLServerVariable}.Require(t)
	return createDatabaseOn(t, os.Getenv(SQLServerVariable))
}

func createDatabaseOn(t testing.TB, server string) string {
	dsn, err := url.Parse(server)
	require.NoError(t, err, "%s must be a sqlserver:// URL", SQLServerVariable)
	admin, err := sql.Open("sqlserver", dsn.String())
	require.NoError(t, err)
	name := fmt.Sprintf("%s_%x", cmp.Or(os.Getenv(SQLServerPrefixVariable), "chanq_test"), chanq.NewID())
	alone(t, admin, "CREATE DATABASE ["+name+"]")
	t.Cleanup(func() {
		// From a connection inside the database, which is then its only one.
		alone(t, admin, "USE ["+name+"]; ALTER DATABASE ["+name+"] SET SINGLE_USER WITH ROLLBACK IMMEDIATE; USE master; DROP DATABASE ["+name+"]")
		require.NoError(t, admin.Close())
	})
	if os.Getenv(snapshotVariable) == "on" {
		alone(t, admin, "ALTER DATABASE ["+name+"] SET READ_COMMITTED_SNAPSHOT ON")
	}
	if os.Getenv(lockingVariable) == "optimized" {
		alone(t, admin, "ALTER DATABASE ["+name+"] SET ACCELERATED_DATABASE_RECOVERY = ON")
		alone(t, admin, "ALTER DATABASE ["+name+"] SET OPTIMIZED_LOCKING = ON")
	}
	query := dsn.Query()
	query.Set("database", name)
	dsn.RawQuery = query.Encode()
	return dsn.String()
}

// alone executes a statement that needs a database for itself, and repeats it while another session has that database: 1807 is the
// database model, which each CREATE DATABASE locks; 924 and 3702 are the database that is dropped.
func alone(t testing.TB, db *sql.DB, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		_, err := db.ExecContext(ctx, text)
		var e mssql.Error
		if !errors.As(err, &e) || e.Number != 1807 && e.Number != 924 && e.Number != 3702 || ctx.Err() != nil {
			require.NoError(t, err, text)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
