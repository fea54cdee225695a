package chanqweb_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/mssqltest/memnet"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a database with queues in every state, for pages to show. It is in memory, and its page
// is reached without a socket, so both can be in a bubble.
type shop struct{ *webshop.Shop }

func newShop(t *testing.T) *shop { return &shop{webshop.New(t, testdb.Memory)} }

// bubble runs a test in a bubble of testing/synctest, in parallel with others.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Parallel()
	testdb.InBubble(t, true, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Second) }) // what waits for a lock of SQLite notices the end
		test(t)
	})
}

// site is a running page, under a prefix.
type site struct {
	t      testing.TB
	url    string // with the prefix, without a trailing slash
	client *http.Client
	log    *lines
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// patience bounds the wait for a state, and tick is how often the state is checked.
const (
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)

var everything = webshop.Everything

func (s *shop) open(rights chanqweb.Rights, more ...func(*chanqweb.Config)) *site {
	s.T.Helper()
	log := &lines{}
	cfg := chanqweb.Config{Title: "shop", Log: slog.New(slog.NewTextHandler(log, nil)), Rights: func(*http.Request) chanqweb.Rights { return rights }}
	for _, f := range more {
		f(&cfg)
	}
	page, err := chanqweb.New(s.DB, cfg)
	require.NoError(s.T, err)
	s.T.Cleanup(page.Close) // after the server is closed, which waits for event streams
	site := s.serve(page)
	site.log = log
	return site
}

// serve serves a page under a prefix.
func (s *shop) serve(page *chanqweb.Handler) *site {
	s.T.Helper()
	mux := http.NewServeMux()
	mux.Handle("/ops/queues/", http.StripPrefix("/ops/queues", page))
	server := httptest.NewUnstartedServer(mux)
	require.NoError(s.T, server.Listener.Close())
	server.Listener = memnet.Listen()
	server.Start()
	s.T.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	jar, err := cookiejar.New(nil)
	require.NoError(s.T, err)
	client := server.Client()
	client.Jar = jar
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return memnet.Dial(ctx, address) }
	client.Transport = &http.Transport{DialContext: dial}
	s.T.Cleanup(client.CloseIdleConnections)
	return &site{t: s.T, url: server.URL + "/ops/queues", client: client}
}

// reply is a response that was read.
type reply struct {
	*http.Response
	text string
}

func (s *site) do(r *http.Request) reply {
	s.t.Helper()
	response, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer response.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(response.Body)
	require.NoError(s.t, err)
	return reply{response, b.String()}
}

func (s *site) get(path string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	return s.do(r)
}

// see is get for a page that exists.
func (s *site) see(path string) string {
	s.t.Helper()
	r := s.get(path)
	require.Equal(s.t, http.StatusOK, r.StatusCode, "%s: %s", path, r.text)
	return r.text
}

var tokenField = regexp.MustCompile(`name="token" value="([0-9a-f]+)"`)

// token returns the token of the forms of a page.
func (s *site) token(path string) string {
	s.t.Helper()
	found := tokenField.FindStringSubmatch(s.see(path))
	require.NotNil(s.t, found, "%s has a form", path)
	return found[1]
}

// post sends a form to a queue; fields are names and values.
func (s *site) post(queue string, fields ...string) reply {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/q/"+queue+"/change", strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.do(r)
}
