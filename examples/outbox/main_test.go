package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

func TestAnOrderAndItsMessagesAreStoredOnceAndTogether(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	defer db.Close()
	s, err := open(t.Context(), db)
	require.NoError(t, err)
	number := func(query string) (n int) {
		require.NoError(t, db.QueryRow(query).Scan(&n))
		return n
	}
	require.Equal(t, 2, number("PRAGMA auto_vacuum"), "Migrate found an empty file")
	_, err = db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON chanq_parcels WHEN CAST(NEW.body AS TEXT) LIKE '%mallory%'
		BEGIN SELECT RAISE(ABORT, 'no parcel'); END`)
	require.NoError(t, err)
	for _, c := range []struct {
		id, customer string
		code         int
		answer       string
	}{
		{"1", "ada", http.StatusOK, "order 1\n"},
		{"2", "", http.StatusUnprocessableEntity, "an order needs a customer\n"},
		{"3", "mallory", http.StatusServiceUnavailable, "please repeat the request\n"},
		{"4", "grace", http.StatusOK, "order 4\n"},
		{"1", "ada", http.StatusOK, "order 1\n"}, // the client has not received the response
	} {
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/orders/"+c.id+"?customer="+c.customer, nil)
		request.SetPathValue("id", c.id)
		s.order(answer, request)
		require.Equal(t, c.code, answer.Code, "%s %s", c.id, c.customer)
		require.Equal(t, c.answer, answer.Body.String())
	}
	for _, table := range []string{"orders", "chanq_receipts", "chanq_parcels"} {
		require.Equal(t, 2, number("SELECT COUNT(*) FROM "+table), table)
	}
}
