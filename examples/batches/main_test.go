package main

import (
	"database/sql"
	"fmt"
	"strings"
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
	var lines strings.Builder
	for i := range 1200 {
		fmt.Fprintln(&lines, i)
		if i == 700 {
			fmt.Fprintln(&lines, -1)
		}
	}
	require.NoError(t, run(t.Context(), db, strings.NewReader(lines.String())))
	require.Equal(t, 1200, number(t, db, "SELECT COUNT(DISTINCT value) FROM measurements"))
	require.Equal(t, 1200, number(t, db, "SELECT COUNT(*) FROM measurements"), "each once")
	require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_measurements"))
	require.Positive(t, number(t, db, "SELECT attempts FROM chanq_measurements WHERE last_error LIKE '%CHECK constraint%'"))

	require.ErrorContains(t, run(t.Context(), db, strings.NewReader("5000\nmuch\n")), `parsing "much"`)
	require.NoError(t, run(t.Context(), db, strings.NewReader("")))
	require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM measurements WHERE value = 5000"))
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
