package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnOrderAndItsMessagesAreStoredTogether(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	s, err := open(t.Context(), db)
	require.NoError(t, err)
	_, err = db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON chanq_parcels WHEN CAST(NEW.body AS TEXT) LIKE '%mallory%'
		BEGIN SELECT RAISE(ABORT, 'no parcel'); END`)
	require.NoError(t, err)
	for _, customer := range []string{"ada", "", "mallory", "grace"} {
		answer, want := httptest.NewRecorder(), http.StatusOK
		s.order(answer, httptest.NewRequest(http.MethodPost, "/orders?customer="+customer, nil))
		if customer == "" || customer == "mallory" {
			want = http.StatusUnprocessableEntity
		}
		require.Equal(t, want, answer.Code, "%s: %s", customer, answer.Body)
	}
	for _, table := range []string{"orders", "chanq_receipts", "chanq_parcels"} {
		var n int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+table).Scan(&n))
		require.Equal(t, 2, n, table)
	}
}
