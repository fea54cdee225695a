package main

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAJobContinuesWhereTheSignalEndedIt(t *testing.T) { synctest.Test(t, continues) }

func continues(t *testing.T) {
	db := send(t, 10)
	var pages []int
	for _, last := range []int{3, 7, 9} { // the page after which the signal comes
		work(t, db, last, func(page int) { pages = append(pages, page) })
		require.Zero(t, number(t, db, "SELECT COALESCE(SUM(attempts), 0) FROM chanq_jobs"), "the job was released uncounted, or is acked")
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, pages)
	require.Zero(t, number(t, db, "SELECT COUNT(*) FROM chanq_jobs"))
}

// Another process has claimed the job, because the lease of this process expired, and has read eight pages. This process has not
// detected it.
func TestAnEarlierHolderDoesNotResetTheProgress(t *testing.T) { synctest.Test(t, keepsProgress) }

func keepsProgress(t *testing.T) {
	db := send(t, 10)
	var pages []int
	work(t, db, 9, func(page int) {
		if pages = append(pages, page); page == 2 {
			require.Equal(t, 2, number(t, db, "UPDATE chanq__progress SET state = '8', fence = fence + 1 RETURNING 2"))
		}
	})
	require.Equal(t, []int{0, 1, 2, 8, 9}, pages, "its attempt has failed, and the next one goes on")
}

// send stores a job in a new database.
func send(t *testing.T, pages int) *sql.DB {
	db := chanqtest.DB(t)
	require.NoError(t, chanq.Migrate(t.Context(), db, "jobs", chanq.Config{}))
	jobs, err := chanq.Open[int](t.Context(), db, "jobs", chanq.Config{})
	require.NoError(t, err)
	_, err = jobs.Send(t.Context(), chanq.Msg(pages))
	require.NoError(t, err)
	return db
}

// work runs a process that receives the signal while it reads the last page.
func work(t *testing.T, db *sql.DB, last int, read func(page int)) {
	ctx, signal := context.WithTimeout(t.Context(), time.Minute)
	defer signal()
	require.NoError(t, run(ctx, db, func(ctx context.Context, page int) error {
		if read(page); page == last {
			signal()
			time.Sleep(50 * time.Millisecond) // until the consumer has stopped
		}
		return ctx.Err() // the time to drain is not over
	}))
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
