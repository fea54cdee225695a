package main

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each customer withdraws 70 twice and receives money in between, so that another order has another
// result.
func TestMovementsOfACustomerAreBookedInOrder(t *testing.T) {
	db := open(t)
	var args []string
	for _, amount := range []int{100, -70, -70, 30, -60} {
		for customer := range 20 {
			args = append(args, fmt.Sprintf("%d=%d", customer, amount))
		}
	}
	require.NoError(t, run(t.Context(), db, args))
	for customer := range 20 {
		require.Equal(t, "100 = 100, -70 = 30, -70 refused, 30 = 60, -60 = 0", booked(t, db, fmt.Sprint(customer)))
	}
}

func TestADeadMovementBlocksThoseOfItsCustomer(t *testing.T) {
	db := open(t)
	require.NoError(t, run(t.Context(), db, []string{"ada=100"}))
	unreadable, err := chanq.Open[string](t.Context(), db, "movements", chanq.Config{})
	require.NoError(t, err)
	_, err = unreadable.Send(t.Context(), chanq.Message[string]{Key: "ada", Body: "much"})
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), db, []string{"ada=-10", "bob=5"}))
	require.Equal(t, "100 = 100", booked(t, db, "ada"))
	require.Equal(t, "5 = 5", booked(t, db, "bob"))
}

func TestAnInvalidMovementIsReported(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), open(t), []string{"ada=100", "ada much"}), `"ada much" is not customer=amount`)
}

func open(t *testing.T) *sql.DB {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// booked returns the rows of a customer.
func booked(t *testing.T, db *sql.DB, customer string) (rows string) {
	const query = "SELECT group_concat(amount || iif(refused, ' refused', ' = ' || balance), ', ' ORDER BY id) FROM ledger WHERE customer = ?"
	require.NoError(t, db.QueryRow(query, customer).Scan(&rows))
	return rows
}
