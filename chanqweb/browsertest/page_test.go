package browsertest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for a state, and tick is how often the state is checked.
const (
	patience = 2 * time.Minute
	tick     = 10 * time.Millisecond
)

// open serves the page of a shop under a prefix until the test ends. It returns the page's address without
// a trailing slash.
func open(s *webshop.Shop, rights chanqweb.Rights, more ...func(*chanqweb.Config)) string {
	s.T.Helper()
	cfg := chanqweb.Config{Title: "shop", Log: slog.New(slog.DiscardHandler), Rights: func(*http.Request) chanqweb.Rights { return rights }}
	for _, f := range more {
		f(&cfg)
	}
	page, err := chanqweb.New(s.DB, cfg)
	require.NoError(s.T, err)
	s.T.Cleanup(page.Close) // after the server is closed, which waits for event streams
	mux := http.NewServeMux()
	mux.Handle("/ops/queues/", http.StripPrefix("/ops/queues", page))
	server := httptest.NewServer(mux)
	s.T.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/ops/queues"
}
