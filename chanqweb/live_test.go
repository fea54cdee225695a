package chanqweb_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
)

// follow opens a stream of events, and returns the next one.
func (s *site) follow(path string) (next func() string, end func()) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	response, err := s.client.Do(r)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, response.StatusCode)
	require.Equal(s.t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	next = func() string {
		var b strings.Builder
		for lines.Scan() {
			if lines.Text() == "" {
				return b.String()
			}
			if strings.HasPrefix(lines.Text(), "retry: ") {
				continue
			}
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			require.True(s.t, ok || lines.Text() == "data:", lines.Text())
			b.WriteString(text + "\n")
		}
		return ""
	}
	return next, func() { require.NoError(s.t, response.Body.Close()) }
}

func TestAPageUpdatesItsFigures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		next, end := s.follow("/q/mail/live?span=hour")
		defer end()
		require.Contains(t, next(), `<a id="t-ready" href="../../q/mail/messages?state=ready">0</a>`)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})
		for !strings.Contains(next(), `state=ready">1</a>`) { // until the test times out
		}
	})
}

func TestCloseEndsPagesThatFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		page, err := chanqweb.New(shop.DB, chanqweb.Config{})
		require.NoError(t, err)
		s := shop.serve(page)
		next, end := s.follow("/live")
		defer end()
		require.Contains(t, next(), "mail")
		page.Close()
		for next() != "" { // until the stream ends
		}
	})
}
