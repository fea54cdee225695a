package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// serving is a running chanq ui.
type serving struct {
	t    *testing.T
	url  string
	stop func() (status int, said string)
}

func serveUI(t *testing.T, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	var said safeBuilder
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, append([]string{"ui", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), out, &said)
		_ = out.Close() // a pipe: never fails
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	require.NoError(t, err, said.String())
	stop := sync.OnceValues(func() (int, string) {
		cancel()
		return <-ended, said.String()
	})
	t.Cleanup(func() { stop() })
	return &serving{t, strings.TrimSpace(line), stop}
}

type safeBuilder struct {
	mu sync.Mutex
	strings.Builder
}

func (b *safeBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}

func (b *safeBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.String()
}

func (s *serving) get(change func(*http.Request)) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/q/mail/", nil)
	require.NoError(s.t, err)
	change(r)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	require.NoError(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(body)
}

func TestUIServesThisMachineAndIsReadOnly(t *testing.T) {
	s := serveUI(t, "--db", newQueue(t, "mail"))
	status, body := s.get(func(*http.Request) {})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "read-only")
	require.NotContains(t, body, `method="post"`)
	status, body = s.get(func(r *http.Request) { r.Host = "evil.example" })
	require.Equal(t, http.StatusMisdirectedRequest, status)
	require.NotContains(t, body, "mail")
	ended, said := s.stop()
	require.Equal(t, exitOK, ended, said)
}

func TestUIHasMetricsAndProbes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("p4ss-w0rd-of-ui\n"), 0o600))
	s := serveUI(t, "--db", newQueue(t, "mail"), "--password", "@"+file)
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusUnauthorized} {
		status, _ := s.get(func(r *http.Request) { r.URL.Path = path })
		require.Equal(t, want, status, path)
	}
	status, body := s.get(func(r *http.Request) {
		r.URL.Path = "/metrics"
		r.SetBasicAuth("prometheus", "p4ss-w0rd-of-ui")
	})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `chanq_messages{queue="mail",state="ready"} 0`)
}

func TestUIFindsWhatItsLimitsSay(t *testing.T) {
	db := newQueue(t, "mail")
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	q, err := chanq.Open[string](t.Context(), c.DB, "mail", chanq.Config{})
	require.NoError(t, err)
	consumer, err := q.Consume(t.Context(), chanq.ConsumerConfig{Prefetch: 1})
	require.NoError(t, err)
	defer consumer.Shutdown(context.WithoutCancel(t.Context()))
	for range 5 { // more than it takes
		succeed(t, "", "send", "--db", db, "mail", "x")
	}
	require.Eventually(t, func() bool { return len(succeed(t, "", "consumers", "--db", db).lines()) == 2 }, time.Minute, 10*time.Millisecond)
	for flag, late := range map[string]string{"--late=1ms": "1", "--late=24h": "0"} {
		s := serveUI(t, "--db", db, flag)
		_, metrics := s.get(func(r *http.Request) { r.URL.Path = "/metrics" })
		require.Contains(t, metrics, `chanq_finding{kind="late",queue="mail"} `+late, flag)
		_, page := s.get(func(r *http.Request) { r.URL.Path = "/" })
		require.Equal(t, late == "1", strings.Contains(page, "the oldest ready message has waited"), "%s: %s", flag, page)
	}
	require.Equal(t, exitUsage, runIn(t.Context(), "", "ui", "--db", db, "--stuck=-1s").status)
}

func TestUIRequiresItsPasswordAndDoesNotPrintIt(t *testing.T) {
	const password = "p4ss-w0rd-of-ui"
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	s := serveUI(t, "--db", newQueue(t, "mail"), "--password", "@"+file, "--allow-changes")
	status, body := s.get(func(*http.Request) {})
	require.Equal(t, http.StatusUnauthorized, status)
	require.NotContains(t, body, "mail")
	status, body = s.get(func(r *http.Request) {
		r.Host = "queues.example" // with the password, any host name is allowed
		r.SetBasicAuth("ada", password)
	})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "ada: may change")
	_, said := s.stop()
	require.NotContains(t, said+body, password)
}

// A browser with an updating page does not prevent the command from ending.
func TestUIEndsWhileABrowserFollows(t *testing.T) {
	s := serveUI(t, "--db", newQueue(t, "mail"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/live", nil)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: &http.Transport{}}).Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	ended := make(chan int, 1)
	go func() {
		status, _ := s.stop()
		ended <- status
	}()
	select {
	case status := <-ended:
		require.Equal(t, exitOK, status)
	case <-time.After(time.Minute):
		t.Fatal("it waits for the updating page")
	}
}
