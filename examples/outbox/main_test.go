package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
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

// A client repeats its request until it has the response, whatever statement of the shop's program was the last one.
func TestAnOrderIsStoredOnceWhereverTheProgramDies(t *testing.T) {
	for crash := range chanqtest.Crashes(t) {
		db := chanqtest.DB(t)
		s, err := open(t.Context(), db)
		require.NoError(t, err)
		crash(t, db)
		for code := 0; code != http.StatusOK; {
			answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/orders/1?customer=ada", nil)
			request.SetPathValue("id", "1")
			s.order(answer, request)
			code = answer.Code
		}
		for _, queue := range []*chanq.Queue[order]{s.receipts, s.parcels} {
			require.Len(t, chanqtest.Sent(t, queue), 1)
			require.Equal(t, `{"ID":"1","Customer":"ada"}`, chanqtest.Sent(t, queue)[0].String())
		}
	}
}

func TestASignalStopsTheServerAndThenTheWorker(t *testing.T) {
	db, err := embedded.Open(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	defer db.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.ErrorContains(t, run(t.Context(), db, address), "in use")
	require.NoError(t, free.Close())
	ctx, signal := context.WithCancel(t.Context())
	defer signal()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db, address) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+address+"/orders/1?customer=ada", http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		var receipts, parcels int
		require.NoError(t, db.QueryRow("SELECT (SELECT COUNT(*) FROM chanq_receipts), (SELECT COUNT(*) FROM chanq_parcels)").Scan(&receipts, &parcels))
		return receipts == 0 && parcels == 1
	}, time.Minute, 10*time.Millisecond)
	signal()
	require.NoError(t, <-ended)
}
