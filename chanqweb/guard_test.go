package chanqweb_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqweb"
)

var fine = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("user " + chanqweb.Login(r).User)) })

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
	require.Equal(t, http.StatusUnauthorized, answerOf(chanqweb.WithLogin(fine, chanqweb.Password("", chanqweb.Rights{}), slog.New(slog.DiscardHandler)), r).Code)
}

func TestAPasswordIsRequired(t *testing.T) {
	h := chanqweb.WithLogin(fine, chanqweb.Password("open sesame", chanqweb.Rights{}), slog.New(slog.DiscardHandler))
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

// Ten wrong passwords a minute from one network, and what they cost others.
func TestWrongPasswordsAreLoggedAndSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		h := chanqweb.WithLogin(fine, chanqweb.Password("open sesame", chanqweb.Rights{}), slog.New(slog.NewTextHandler(&said, nil)))
		ask := func(from, password string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = from
			r.SetBasicAuth("mallory\n", password)
			return answerOf(h, r)
		}
		for i := range 10 {
			require.Equal(t, http.StatusUnauthorized, ask(fmt.Sprintf("[2001:db8::%d]:50000", i), "guess").Code)
			time.Sleep(time.Second)
		}
		require.Equal(t, 10, strings.Count(said.String(), "a wrong password"))
		require.Contains(t, said.String(), `from=[2001:db8::9]:50000 user="mallory\n" wrong=10`)
		for _, password := range []string{"guess", "open sesame"} { // otherwise the answer would tell that it is right
			refused := ask("[2001:db8::77]:50000", password)
			require.Equal(t, http.StatusTooManyRequests, refused.Code)
			require.Equal(t, "51", refused.Header().Get("Retry-After"))
			require.Empty(t, refused.Header().Get("WWW-Authenticate"), "a browser would ask again")
		}
		require.Equal(t, http.StatusOK, ask("[2001:db8:0:1::1]:50000", "open sesame").Code, "another network")
		require.Equal(t, http.StatusOK, ask("10.0.0.1:50000", "open sesame").Code)
		require.Equal(t, 10, strings.Count(said.String(), "a wrong password"), "what was not checked is not logged")
		time.Sleep(50 * time.Second)
		require.Equal(t, http.StatusOK, ask("[2001:db8::77]:50000", "open sesame").Code)
		require.Equal(t, http.StatusUnauthorized, ask("[2001:db8::77]:50000", "guess").Code)
		require.Contains(t, said.String(), "wrong=1 ")
	})
}

// Users behind one proxy have one address.
func TestABrowserThatHasLoggedInIsNotRejectedForTheGuessesOfOthers(t *testing.T) {
	login := func() http.Handler {
		return chanqweb.WithLogin(fine, func(name, password string) (chanqweb.Rights, bool) {
			return chanqweb.Rights{User: name}, password == "open sesame" || password == "of the administrator"
		}, slog.New(slog.DiscardHandler))
	}
	h := login()
	ask := func(name, password string, with ...*http.Cookie) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://queues.example/", nil)
		r.SetBasicAuth(name, password)
		for _, c := range with {
			r.AddCookie(c)
		}
		return answerOf(h, r).Result()
	}
	first := ask("ada", "open sesame").Cookies()
	require.Len(t, first, 1)
	require.Equal(t, 30*24*60*60, first[0].MaxAge)
	require.True(t, first[0].HttpOnly && first[0].Secure && first[0].SameSite == http.SameSiteStrictMode)
	for range 10 {
		require.Empty(t, ask("ada", "guess", first...).Cookies())
	}
	known := ask("ada", "open sesame", first...)
	require.Equal(t, http.StatusOK, known.StatusCode)
	require.Empty(t, known.Cookies(), "it has one")
	require.Equal(t, http.StatusTooManyRequests, ask("ada", "open sesame").StatusCode, "without the cookie")
	require.Equal(t, http.StatusTooManyRequests, ask("ada", "of the administrator", first...).StatusCode, "for this password only")
	require.Equal(t, http.StatusTooManyRequests, ask("eve", "open sesame", first...).StatusCode, "for this name only")
	h = login()
	for range 10 {
		ask("ada", "guess")
	}
	require.Equal(t, http.StatusTooManyRequests, ask("ada", "open sesame", first...).StatusCode, "the cookie of another process")
}

func TestSimultaneousGuessesAreCountedToo(t *testing.T) {
	var checked atomic.Int32
	h := chanqweb.WithLogin(fine, func(string, string) (chanqweb.Rights, bool) {
		checked.Add(1)
		runtime.Gosched()
		return chanqweb.Rights{}, false
	}, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.SetBasicAuth("mallory", "guess")
			answerOf(h, r)
		})
	}
	all.Wait()
	require.Equal(t, int32(10), checked.Load())
}
