package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// get asks for the page of the queue mail.
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

// fileWith returns the name of a file with this text.
func fileWith(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func as(name, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

func TestUILetsOnlyTheAdministratorsPasswordChange(t *testing.T) {
	s := serveUI(t, "--db", newQueue(t, "mail"), "--password", "@"+fileWith(t, "look-look-look\n"), "--admin-password", "@"+fileWith(t, "change-change\n"))
	_, body := s.get(as("ada", "look-look-look"))
	require.Contains(t, body, "read-only")
	_, body = s.get(as("ada", "change-change"))
	require.Contains(t, body, "ada: may change")
	status, _ := s.get(as("ada", "no-password-at-all"))
	require.Equal(t, http.StatusUnauthorized, status)
	_, said := s.stop()
	require.Contains(t, said, `msg="chanqweb: a wrong password" from=127.0.0.1:`)
	require.NotContains(t, said, "no-password-at-all")

	s = serveUI(t, "--db", newQueue(t, "mail"), "--admin-password", "@"+fileWith(t, "change-change"))
	status, _ = s.get(as("ada", ""))
	require.Equal(t, http.StatusUnauthorized, status, "without --password nobody may only look")
}

// The hashes are those that htpasswd -nbB -C 5 prints for "sesame" and "horse".
const usersFile = `# of the shop
ada:$2y$05$7.i6215dh2YFULGtG37Bf.P44GbjLQanO39qZoFGrWOZFZG.j11Pe:change

eve:$2y$05$RBpQeBEGI0/HH4ilYV1ntuTdQdeuUP/pScDhGY9nZybCxiPRz3YxC
`

func TestUIHasUsersOfAFile(t *testing.T) {
	s := serveUI(t, "--db", newQueue(t, "mail"), "--users", fileWith(t, usersFile))
	for range 2 { // the second answer is remembered
		_, body := s.get(as("ada", "sesame"))
		require.Contains(t, body, "ada: may change")
		_, body = s.get(as("eve", "horse"))
		require.Contains(t, body, "read-only")
	}
	for name, password := range map[string]string{"ada": "horse", "eve": "sesame", "bob": "sesame", "Ada": "sesame", "": "sesame"} {
		status, _ := s.get(as(name, password))
		require.Equal(t, http.StatusUnauthorized, status, name)
	}
}

func TestWrongPasswordsUseHalfOfTheProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := readUsers(fileWith(t, usersFile))
		require.NoError(t, err)
		check := func(password string) bool { _, ok := u.check("ada", password); return ok }
		require.True(t, check("sesame"))
		for range cap(u.work) {
			u.work <- struct{}{}
		}
		require.Equal(t, (runtime.GOMAXPROCS(0)+1)/2, cap(u.work))
		require.True(t, check("sesame"), "who has logged in does not wait")
		wrong := make(chan bool, 1)
		go func() { wrong <- check("guess") }() // ends with the test
		synctest.Wait()
		require.Empty(t, wrong)
		<-u.work
		require.False(t, <-wrong)
	})
}

func TestUIRefusesAWrongFileOfUsersBeforeItListens(t *testing.T) {
	good := strings.Split(usersFile, "\n")[1]
	for text, words := range map[string]string{
		"":                                       "no user is in the file",
		"# nobody\n":                             "no user is in the file",
		good + "\nada\n":                         "line 2: must be NAME:HASH",
		good + "\n:$2y$05$x\n":                   "line 2: must be NAME:HASH",
		"ada:sesame":                             "line 1: the hash must be one of bcrypt",
		"\n\n" + good + ":x":                     "line 3: must be NAME:HASH",
		good[:len(good)-6] + "root":              `line 1: after the hash is "root": must be change`,
		good + "\n" + good:                       "line 2: the name ada is in the file twice",
		strings.Replace(good, "$05$", "$31$", 1): "line 1: the hash must be one of bcrypt, of a cost up to 16",
		strings.Repeat("x", 100_000):             "token too long",
	} {
		r := runIn(t.Context(), "", "ui", "--db", filepath.Join(t.TempDir(), "none.db"), "--users", fileWith(t, text))
		require.Equal(t, exitUsage, r.status, r.err)
		require.Contains(t, r.err, words)
		require.NotContains(t, r.err, "sesame")
	}
	r := runIn(t.Context(), "", "ui", "--users", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, exitUsage, r.status)
	require.Contains(t, r.err, "no such file")
}

func TestUIRefusesFlagsThatContradictEachOther(t *testing.T) {
	look, users := "@"+fileWith(t, "look-look-look"), fileWith(t, usersFile)
	for _, c := range []struct {
		words string
		args  []string
	}{
		{"who may: give one", []string{"--allow-changes", "--users", users}},
		{"who may: give one", []string{"--allow-changes", "--admin-password", look}},
		{"--users excludes", []string{"--users", users, "--password", look}},
		{"is the same as --password", []string{"--admin-password", look, "--password", look}},
		{"--admin-password must be @FILE or env:NAME", []string{"--admin-password", "look-look-look"}},
		{"give --password or --users", []string{"--listen", ":0"}},
	} {
		r := runIn(t.Context(), "", append([]string{"ui", "--db", "none.db"}, c.args...)...)
		require.Equal(t, exitUsage, r.status, r.err)
		require.Contains(t, r.err, c.words)
	}
}

func TestUIPrintsAnAddressThatCanBeOpened(t *testing.T) {
	for address, want := range map[string]string{"[::]:8711": "localhost:8711", "0.0.0.0:80": "localhost:80", "127.0.0.1:8686": "127.0.0.1:8686", "[::1]:8686": "[::1]:8686"} {
		a, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		require.Equal(t, want, opened(a))
	}
}
