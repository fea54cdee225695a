package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The first run has no time, and leaves what it has not answered to the second.
func TestEachMessageIsAnsweredOnceThoughTheTimeOfARunIsOver(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "post.db"))
	require.NoError(t, err)
	defer db.Close()
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprint("item ", i))
	}
	number := func(query string) (n int) {
		require.NoError(t, db.QueryRow(query).Scan(&n))
		return n
	}
	require.NoError(t, run(t.Context(), db, 0, items...))
	left := number("SELECT (SELECT COUNT(*) FROM chanq_orders) + (SELECT COUNT(*) FROM chanq_returns)")
	require.Equal(t, 200, left+number("SELECT COUNT(*) FROM chanq_letters"))
	require.NoError(t, run(t.Context(), db, time.Hour))
	require.Equal(t, 200, number("SELECT COUNT(DISTINCT CAST(body AS TEXT)) FROM chanq_letters"))
	require.Equal(t, 200, number("SELECT COUNT(*) FROM chanq_letters"))
	require.Zero(t, number("SELECT (SELECT COUNT(*) FROM chanq_orders) + (SELECT COUNT(*) FROM chanq_returns)"))
	require.Equal(t, 100, number("SELECT COUNT(*) FROM chanq_letters WHERE CAST(body AS TEXT) LIKE '%return of%'"))
}
