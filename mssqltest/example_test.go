package mssqltest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/mssqltest/memnet"
)

const take = `UPDATE TOP (1) dbo.jobs WITH (ROWLOCK, READPAST) SET taken = 1
	OUTPUT inserted.id WHERE taken = 0`

// Two workers that look simultaneously get different jobs.
func TestWorkersTakeDifferentJobs(t *testing.T) {
	db := mssqltest.DB(t)
	_, err := db.Exec(`CREATE TABLE dbo.jobs (id int PRIMARY KEY, taken bit NOT NULL DEFAULT 0);
		INSERT INTO dbo.jobs (id) VALUES (1), (2)`)
	require.NoError(t, err)
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	var first, second int
	require.NoError(t, tx.QueryRow(take).Scan(&first))  // and does not commit yet
	require.NoError(t, db.QueryRow(take).Scan(&second)) // does not wait
	require.NotEqual(t, first, second)
}

func Example() {
	server, err := mssqltest.Serve(memnet.Listen(), mssqltest.Options{}) // in a test: db := mssqltest.DB(t)
	check(err)
	defer server.Close()
	db := server.DB()
	_, err = db.Exec(`CREATE TABLE dbo.jobs (id int PRIMARY KEY, taken bit NOT NULL DEFAULT 0);
		INSERT INTO dbo.jobs (id) VALUES (1), (2)`)
	check(err)
	tx, err := db.Begin()
	check(err)
	var first, second int
	check(tx.QueryRow(take).Scan(&first))
	check(db.QueryRow(take).Scan(&second))
	check(tx.Rollback())
	fmt.Println(first, second)
	// Output: 1 2
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
