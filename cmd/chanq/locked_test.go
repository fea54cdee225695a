package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

// lockables are the engines on which a table can be locked, also for reads.
var lockables = map[string]struct{ driver, lock, found string }{
	"SQL Server": {"sqlserver", "DECLARE @n int; SELECT @n = COUNT(*) FROM dbo.%s WITH (TABLOCKX)", "X FAIL +locked: locked by "},
	"PostgreSQL": {"pgx", "LOCK TABLE %s", "X FAIL +locked: locked by "},
}

// locking creates queues, and locks a table in a transaction.
func locking(t *testing.T, driver, lock string, queues ...string) (dsn string, _ *sql.Tx) {
	t.Helper()
	if driver == "pgx" {
		dsn = pgtest.URL(t)
	} else {
		dsn = mssqltest.Start(t, mssqltest.Options{}).DSN()
	}
	for _, queue := range queues {
		succeed(t, "", "migrate", "--dsn", dsn, queue)
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // it may have ended
	_, err = tx.ExecContext(t.Context(), lock)
	require.NoError(t, err)
	return dsn, tx
}

// Another program holds a lock on the list of queues: no command waits for it, and doctor finds it.
func TestALockedListOfQueuesIsSaid(t *testing.T) {
	for name, e := range lockables {
		t.Run(name, func(t *testing.T) {
			dsn, tx := locking(t, e.driver, fmt.Sprintf(e.lock, "chanq__queues"), "mail")
			for args, want := range map[string]string{
				"stats":    "no answer within 4s: the list of queues may be locked; chanq doctor says by whom",
				"top -n 1": "no answer within 4s: the list of queues may be locked; chanq doctor says by whom",
				"doctor":   e.found,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // on a machine that is busy
				r := runIn(ctx, "", append(strings.Fields(args), "--dsn", dsn)...)
				require.NoError(t, ctx.Err(), args)
				cancel()
				require.Equal(t, 1, r.status, "%s: %s%s", args, r.out, r.err)
				require.Regexp(t, want, r.out+r.err, args)
			}
			require.NoError(t, tx.Rollback())
			succeed(t, "", "top", "-n", "1", "--dsn", dsn)
		})
	}
}

// Another program holds a lock on the tables of one queue: the others are shown in time, and the error says what to do.
func TestALockedQueueHidesNoOtherInTime(t *testing.T) {
	for name, e := range lockables {
		t.Run(name, func(t *testing.T) {
			dsn, tx := locking(t, e.driver, fmt.Sprintf(e.lock, "chanq_locked"), "alpha", "locked", "zebra")
			for _, args := range [][]string{{"stats"}, {"top", "-n", "1"}} {
				began := time.Now()
				r := runIn(t.Context(), "", append(args, "--dsn", dsn)...)
				took := time.Since(began)
				t.Logf("%v: %v", args, took)
				require.Less(t, took, 20*time.Second, "on a machine that is busy")
				for _, queue := range []string{"alpha", "zebra"} {
					require.Regexp(t, `(?m)^`+queue+` +0`, r.out, args)
				}
				said := r.out + r.err
				if args[0] == "top" && strings.Contains(said, "X locked: locked by ") {
					continue // it has found the session
				}
				require.Contains(t, said, "locked: no answer within 2s: its tables may be locked; chanq doctor locked says by whom", args)
			}
			require.NoError(t, tx.Rollback())
			succeed(t, "", "stats", "--dsn", dsn)
		})
	}
}

// A filter that matches little ends in time, and says how to go on.
func TestPeekSaysHowFarItLooked(t *testing.T) {
	db := newQueue(t, "mail")
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
		INSERT INTO chanq_mail (id, due_at, type, body) SELECT CAST(printf('%016d', i) AS BLOB), 900000000000 + i, iif(i = 29000, 'rare', 'often'), x'78' FROM n`)
	require.NoError(t, err)
	args := []string{"peek", "--db", db, "--type", "rare", "-n", "3", "--within", "1ns", "mail"}
	r := succeed(t, "", args...)
	found := 0
	for range 10 {
		require.Regexp(t, `^looked at about \d+ ready messages; go on: --after ready\.\S+\n$`, r.err)
		_, at, _ := strings.Cut(strings.TrimSpace(r.err), "--after ")
		r = succeed(t, "", append(args, "--after", at)...)
		if found += len(r.lines()) - 1; r.err == "" {
			break
		}
	}
	require.Equal(t, 1, found)
	require.Empty(t, succeed(t, "", "peek", "--db", db, "-n", "25000", "--within", "1ns", "-o", "json", "mail").err, "without a filter")
}
