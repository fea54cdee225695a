package chanqweb_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqweb"
)

var fine = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("user " + chanqweb.User(r))) })

func answerOf(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestALocalPageIsServedUnderItsOwnNameOnly(t *testing.T) {
	h := chanqweb.LocalOnly(fine)
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8686": 200, "127.0.0.1:8686": 200, "127.8.9.1": 200, "[::1]:8686": 200, "[::1]": 200,
		"evil.example": 421, "evil.example:8686": 421, "localhost.evil.example": 421, "10.0.0.1:8686": 421, "": 421, "127.0.0.1.evil.example": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Host, r.RemoteAddr = host, "127.0.0.1:50000"
		w := answerOf(h, r)
		require.Equal(t, status, w.Code, host)
		if status != http.StatusOK {
			require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		}
	}
}

func TestALocalPageIsRefusedUnderOtherNames(t *testing.T) {
	h := chanqweb.LocalOnly(fine)
	for from, status := range map[string]int{
		"127.0.0.1:50000": 200, "[::1]:50000": 200, "10.0.0.9:50000": 421, "[2001:db8::1]:50000": 421, "@": 421, "": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Host, r.RemoteAddr = "localhost", from
		require.Equal(t, status, answerOf(h, r).Code, from)
	}
}

func TestAnEmptyPasswordIsRefused(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.SetBasicAuth("ada", "")
	require.Equal(t, http.StatusUnauthorized, answerOf(chanqweb.WithPassword(fine, ""), r).Code)
}

func TestAPasswordIsRequired(t *testing.T) {
	h := chanqweb.WithPassword(fine, "open sesame")
	ask := func(with func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		with(r)
		return answerOf(h, r)
	}
	refused := ask(func(*http.Request) {})
	require.Equal(t, http.StatusUnauthorized, refused.Code)
	require.Contains(t, refused.Header().Get("WWW-Authenticate"), "Basic")
	for _, wrong := range []string{"", "open", "open sesame ", "Open sesame"} {
		require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.SetBasicAuth("ada", wrong) }).Code, wrong)
	}
	right := ask(func(r *http.Request) { r.SetBasicAuth("ada", "open sesame") })
	require.Equal(t, "user ada", right.Body.String())
}
