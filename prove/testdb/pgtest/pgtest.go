// Package pgtest creates PostgreSQL databases for tests.
package pgtest

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// Variable is the environment variable with the connection string of a server in which tests may create databases.
// .ci/postgres starts a private server and prints its string.
const Variable = "CHANQ_TEST_POSTGRES"

var databases atomic.Int64

// DSN returns the connection string of a new, empty database, which is dropped when the test ends. Without a server the
// test is skipped.
func DSN(t testing.TB) string {
	t.Helper()
	return create(t, server(t), "")
}

// server returns the connection string of the server; without one the test is skipped.
func server(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv(Variable)
	if dsn == "" {
		t.Skipf("NOT TESTED on PostgreSQL: %s is not set; %[1]s=\"$(.ci/postgres start /tmp/chanq-postgres)\" starts a server", Variable)
	}
	return dsn
}

// Copy returns the connection string of a new database that is a copy of another, which must have no connections. It is
// dropped when the test ends.
func Copy(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return create(t, dsn, " TEMPLATE "+config.Database)
}

// Encoding opens a new, empty database of an encoding ("LATIN1").
func Encoding(t testing.TB, encoding string) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(create(t, server(t), " ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0"))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	return db
}

// create creates a database on the server of a connection string.
func create(t testing.TB, dsn, how string) string {
	t.Helper()
	config, err := pgx.ParseConfig(os.Getenv(Variable))
	require.NoError(t, err)
	name := fmt.Sprintf("chanq_test_%d_%d", os.Getpid(), databases.Add(1))
	admin := stdlib.OpenDB(*config)
	_, err = admin.Exec("CREATE DATABASE " + name + how)
	require.NoError(t, err)
	t.Cleanup(func() {
		defer admin.Close()
		_, err := admin.Exec("DROP DATABASE " + name + " WITH (FORCE)") // ends the sessions that the test has left open
		require.NoError(t, err)
	})
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		address, err := url.Parse(dsn)
		require.NoError(t, err)
		address.Path = "/" + name
		return address.String()
	}
	return dsn + " dbname=" + name // the last value counts
}

// Config returns the connection settings of a database like DSN's.
func Config(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(DSN(t))
	require.NoError(t, err)
	return config
}

// URL returns DSN in the form postgres://…, whatever the form of the variable.
func URL(t testing.TB) string {
	t.Helper()
	c := Config(t)
	u := url.URL{Scheme: "postgres", Path: "/" + c.Database, RawQuery: url.Values{
		"host": {c.Host}, "port": {fmt.Sprint(c.Port)}, "user": {c.User}, "password": {c.Password},
	}.Encode()}
	return u.String()
}

// Open opens a new, empty database with pgx.
func Open(t testing.TB) *sql.DB {
	t.Helper()
	config := Config(t)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	return db
}
