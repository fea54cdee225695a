package main

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func TestEachOrderHasOneReceiptAndARefusedOneHasNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.db")
	var stored []string
	for range 2 { // the second process goes on with the file of the first
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, listener, file) }()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for _, customer := range []string{"ada", "", "grace", ""} {
			answer, err := client.Post("http://"+listener.Addr().String()+"/orders?customer="+customer, "", nil)
			require.NoError(t, err)
			said, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			if customer == "" {
				require.Equal(t, http.StatusUnprocessableEntity, answer.StatusCode, string(said))
			} else {
				require.Equal(t, http.StatusOK, answer.StatusCode, string(said))
				stored = append(stored, customer)
			}
		}
		db, err := embedded.Open(file)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return number(t, db, "SELECT COUNT(*) FROM mails") == len(stored) }, time.Minute, 5*time.Millisecond)
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, len(stored), number(t, db, "SELECT COUNT(*) FROM mails JOIN orders ON order_id = id AND text LIKE '%' || customer || '%'"))
		require.Zero(t, number(t, db, "SELECT COUNT(*) FROM chanq_receipts"), "all were acked")
		require.NoError(t, db.Close())
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
