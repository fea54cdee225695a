package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestABadMeasurementFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		var values []string
		for i := range 1200 {
			values = append(values, fmt.Sprint(i))
		}
		require.NoError(t, run(t.Context(), db, slices.Insert(values, 700, "-1")))
		require.Equal(t, 1200, number(t, db, "SELECT COUNT(DISTINCT value) FROM measurements"))
		require.Equal(t, 1200, number(t, db, "SELECT COUNT(*) FROM measurements"), "each once")
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_measurements"))
		require.Positive(t, number(t, db, "SELECT attempts FROM chanq_measurements WHERE last_error LIKE '%CHECK constraint%'"))

		require.ErrorContains(t, run(t.Context(), db, []string{"5000", "much"}), `parsing "much"`)
		require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_measurements"), "none of them was sent")
	})
}

// The values are in the queue when the program starts, and it is killed after each of its statements.
func TestEachMeasurementIsStoredOnceWhereverTheProgramDies(t *testing.T) {
	for crash := range chanqtest.Crashes(t) {
		synctest.Test(t, func(t *testing.T) {
			db := chanqtest.DB(t)
			require.NoError(t, chanq.Migrate(t.Context(), db, "measurements", chanq.Config{}))
			measurements, err := chanq.Open[float64](t.Context(), db, "measurements", chanq.Config{})
			require.NoError(t, err)
			_, err = measurements.Send(t.Context(), chanq.Msg(1.), chanq.Msg(2.), chanq.Msg(3.))
			require.NoError(t, err)
			crash(t, db)
			program := func(ctx context.Context) error { return run(ctx, db, nil) }
			chanqtest.Drain(t, program)
			time.Sleep(time.Hour) // what the dead program held has expired
			chanqtest.Drain(t, program)
			require.Equal(t, 123, number(t, db, "SELECT group_concat(CAST(value AS INTEGER), '' ORDER BY value) FROM measurements"))
		})
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
