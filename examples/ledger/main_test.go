package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each customer withdraws 70 twice and is paid in between, so that another order has another result.
func TestMovementsOfACustomerAreBookedInOrder(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	var in strings.Builder
	for _, amount := range []int{100, -70, -70, 30, -60} {
		for customer := range 20 {
			fmt.Fprintln(&in, customer, amount)
		}
	}
	require.NoError(t, run(t.Context(), db, strings.NewReader(in.String()), io.Discard))
	rows, err := db.Query("SELECT group_concat(amount || ' = ' || balance, ', ' ORDER BY id) FROM ledger GROUP BY customer")
	require.NoError(t, err)
	defer rows.Close()
	customers := 0
	for rows.Next() {
		var booked string
		require.NoError(t, rows.Scan(&booked))
		require.Equal(t, "100 = 100, -70 = 30, 30 = 60, -60 = 0", booked, "the second withdrawal of 70 is not covered")
		customers++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 20, customers)
	var dead int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM chanq_movements__dead WHERE last_error LIKE '% has only 30'").Scan(&dead))
	require.Equal(t, 20, dead)
}

func TestALineThatIsNoMovementIsReported(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	require.ErrorContains(t, run(t.Context(), db, strings.NewReader("ada much\n"), io.Discard), `"ada much" is not a customer and an amount`)
}
