package main

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestABadMeasurementFailsAlone(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
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
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
