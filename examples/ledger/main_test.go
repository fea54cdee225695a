package main

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each customer withdraws 70 twice and receives money in between, so that another order has another
// result.
func TestMovementsOfACustomerAreBookedInOrder(t *testing.T) {
	db := chanqtest.DB(t)
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
	db := chanqtest.DB(t)
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
	require.ErrorContains(t, run(t.Context(), chanqtest.DB(t), []string{"ada=100", "ada much"}), `"ada much" is not customer=amount`)
}

// Movements of two customers, and a program that is killed after each of its statements and started again.
func TestEachMovementIsBookedOnceAndInOrderWhereverTheProgramDies(t *testing.T) {
	testdb.Long(t) // some 100 programs
	for crash := range chanqtest.Crashes(t) {
		synctest.Test(t, func(t *testing.T) {
			db := chanqtest.DB(t)
			require.NoError(t, run(t.Context(), db, []string{"ada=100", "bob=100"}))
			movements, err := chanq.Open[int](t.Context(), db, "movements", chanq.Config{})
			require.NoError(t, err)
			for _, customer := range []string{"ada", "bob"} {
				_, err = movements.Send(t.Context(), chanq.Message[int]{Key: customer, Body: -70}, chanq.Message[int]{Key: customer, Body: -40})
				require.NoError(t, err)
			}
			crash(t, db)
			program := func(ctx context.Context) error { return run(ctx, db, nil) }
			chanqtest.Drain(t, program)
			time.Sleep(time.Hour) // what the dead program held has expired
			chanqtest.Drain(t, program)
			for _, customer := range []string{"ada", "bob"} {
				require.Equal(t, "100 = 100, -70 = 30, -40 refused", booked(t, db, customer))
			}
		})
	}
}

// booked returns the rows of a customer.
func booked(t *testing.T, db *sql.DB, customer string) (rows string) {
	const query = "SELECT group_concat(amount || iif(refused, ' refused', ' = ' || balance), ', ' ORDER BY id) FROM ledger WHERE customer = ?"
	require.NoError(t, db.QueryRow(query, customer).Scan(&rows))
	return rows
}
