package chanqweb_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
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

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a database with queues in every state, for pages to show.
type shop struct {
	t       testing.TB
	db      *sql.DB
	faults  *faultdb.Connector
	sockets bool   // the page is reached by one
	engine  string // of a deep one
	mail    *chanq.Queue[[]byte]
}

const (
	mails  = 120 // that are ready
	deaths = 60
)

// bubble runs a test in a bubble of testing/synctest, beside others.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Parallel()
	testdb.InBubble(t, true, test)
}

// newShop is one in memory, reached without a socket: it and the page may be in a bubble.
func newShop(t testing.TB) *shop { return newShopOn(t, testdb.Memory) }

// newShopOn is one on an engine of SQLite. On a file, the page is reached by a socket.
func newShopOn(t testing.TB, e testdb.Engine) *shop {
	t.Helper()
	s := &shop{t: t, sockets: !e.Bubble}
	s.faults, s.db = database(t, e)
	s.mail = s.queue("mail", chanq.Config{})
	return s
}

func database(t testing.TB, e testdb.Engine) (*faultdb.Connector, *sql.DB) {
	t.Helper()
	inner, err := e.Connect(e.Create(t))
	require.NoError(t, err)
	faults := faultdb.New(inner)
	db := sql.OpenDB(faults)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return faults, db
}

func (s *shop) queue(name string, cfg chanq.Config) *chanq.Queue[[]byte] {
	s.t.Helper()
	require.NoError(s.t, chanq.Migrate(s.t.Context(), s.db, name, cfg))
	q, err := chanq.Open[[]byte](s.t.Context(), s.db, name, cfg)
	require.NoError(s.t, err)
	return q
}

func (s *shop) send(q *chanq.Queue[[]byte], ms ...chanq.Message[[]byte]) []chanq.ID {
	s.t.Helper()
	p, err := q.Producer(chanq.ProducerConfig{})
	require.NoError(s.t, err)
	receipts, err := p.SendBatch(s.t.Context(), ms...)
	require.NoError(s.t, err)
	require.NoError(s.t, p.Close(s.t.Context()))
	var ids []chanq.ID
	for _, r := range receipts {
		ids = append(ids, r.ID)
	}
	return ids
}

// kill sets a message aside for each error.
func (s *shop) kill(q *chanq.Queue[[]byte], body string, headers map[string]string, causes ...error) (ids []chanq.ID) {
	s.t.Helper()
	for range causes {
		s.send(q, chanq.Message[[]byte]{Body: []byte(body), Headers: headers, Priority: chanq.PriorityUrgent})
	}
	leases, err := q.TryLease(s.t.Context(), len(causes), time.Minute)
	require.NoError(s.t, err)
	require.Len(s.t, leases, len(causes))
	for i, l := range leases {
		require.NoError(s.t, l.DeadLetter(causes[i]))
		ids = append(ids, l.ID)
	}
	return ids
}

// fill puts into the shop what a page can show.
func (s *shop) fill() {
	s.t.Helper()
	var causes []error
	for i := range deaths {
		switch {
		case i%10 == 0:
			causes = append(causes, fmt.Errorf(`template "welcome-%d": field "name" is missing`, i))
		case i%4 == 0:
			causes = append(causes, fmt.Errorf("dial tcp 10.0.0.%d:25: connect: connection refused", i))
		case i == 7:
			causes = append(causes, errors.New("panic: runtime error: index out of range [3] with length 3\n\ngoroutine 41 [running]:\nmain.render(0xc000123450)\n\t/srv/mail/render.go:88 +0x1d"))
		default:
			causes = append(causes, fmt.Errorf("550 5.1.1 user %d of 'example.com' is unknown", 1000+i))
		}
	}
	s.kill(s.mail, `{"to":"ada@example.com","subject":"Welcome","tries":[1,2,3],"nested":{"html":"<b>hi</b>","rate":0.25}}`,
		map[string]string{"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": "acme"}, causes...)
	var ms []chanq.Message[[]byte]
	for i := range mails {
		ms = append(ms, chanq.Message[[]byte]{Body: fmt.Appendf(nil, `{"to":"user-%d@example.com"}`, i)})
	}
	for i := range 15 {
		ms = append(ms, chanq.Message[[]byte]{Body: []byte(`{}`), Delay: time.Duration(i+1) * time.Hour})
	}
	s.send(s.mail, ms...)
	s.consume(s.mail, "mailer-1", 12)
	s.consume(s.mail, "mailer-2", 7)

	payments := s.queue("payments", chanq.Config{Kind: chanq.KindOrdered, Slots: 8})
	ms = nil
	for i := range 90 {
		ms = append(ms, chanq.Message[[]byte]{Body: []byte(`{"amount":100}`), Key: fmt.Sprintf("account-%d", i%(7+i%5))})
	}
	s.send(payments, ms...)
	s.consume(payments, "ledger", 3)
	require.NoError(s.t, s.queue("reports", chanq.Config{}).Pause(s.t.Context()))
	s.queue("thumbnails", chanq.Config{})
}

// consume has a consumer that holds n messages until the end of the test.
func (s *shop) consume(q *chanq.Queue[[]byte], name string, n int) {
	s.t.Helper()
	c, err := q.Consume(s.t.Context(), chanq.ConsumerConfig{Name: name, Prefetch: n})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(s.t, c.ReleaseAll(ctx))
	})
	_, err = c.Receive(s.t.Context(), 1)
	require.NoError(s.t, err)
}

// waves is a history that goes up and down.
type waves struct{}

func (waves) History(_ context.Context, queue string, since time.Time, step time.Duration) (list []chanq.Sample, err error) {
	if queue == "thumbnails" {
		return nil, nil
	}
	now := time.Now()
	for at := since.Truncate(step).Add(step); at.Before(now); at = at.Add(step) {
		x := now.Sub(at).Hours() / max(step.Hours()*360, 1) * 2 * math.Pi
		if x > 3.2 && x < 3.6 {
			continue // nobody was there
		}
		busy := 1 + math.Sin(x*2)*0.6 + 0.25*math.Sin(x*17)
		list = append(list, chanq.Sample{
			At: at, Counted: true, Ready: int(400 * busy), Leased: int(40 + 10*math.Sin(x*9)), Dead: int(60 - 8*x), OldestReady: time.Duration(busy * float64(4*time.Second)),
			Sent: int64(90 * busy * step.Seconds()), Acked: int64(88 * busy * step.Seconds() * (1 + 0.1*math.Sin(x*11))), Nacked: int64(3 * step.Seconds()), Delivered: 10, Waited: time.Duration(busy * float64(9*time.Second)),
		})
	}
	return list, nil
}

// site is the page at work, under a prefix.
type site struct {
	t      testing.TB
	url    string // with the prefix, without a slash at the end
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

// patience is for states that come soon, and tick how often they are looked for.
const (
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)

var everything = chanqweb.Rights{User: "ada", Change: true, Bodies: true}

func (s *shop) open(rights chanqweb.Rights, more ...func(*chanqweb.Config)) *site {
	s.t.Helper()
	log := &lines{}
	cfg := chanqweb.Config{Title: "shop", Log: slog.New(slog.NewTextHandler(log, nil)), Rights: func(*http.Request) chanqweb.Rights { return rights }}
	for _, f := range more {
		f(&cfg)
	}
	page, err := chanqweb.New(s.db, cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(page.Close) // after the server's, which waits for what follows
	site := s.serve(page)
	site.log = log
	return site
}

// serve serves a page under a prefix.
func (s *shop) serve(page *chanqweb.Handler) *site {
	s.t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/ops/queues/", http.StripPrefix("/ops/queues", page))
	server := httptest.NewUnstartedServer(mux)
	if !s.sockets {
		require.NoError(s.t, server.Listener.Close())
		server.Listener = memnet.Listen()
	}
	server.Start()
	s.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	client := server.Client()
	client.Jar = jar
	if !s.sockets {
		dial := func(ctx context.Context, _, address string) (net.Conn, error) { return memnet.Dial(ctx, address) }
		client.Transport = &http.Transport{DialContext: dial}
		s.t.Cleanup(client.CloseIdleConnections)
	}
	return &site{t: s.t, url: server.URL + "/ops/queues", client: client}
}

// reply is an answer that was read.
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

// see is get of a page that is there.
func (s *site) see(path string) string {
	s.t.Helper()
	r := s.get(path)
	require.Equal(s.t, http.StatusOK, r.StatusCode, "%s: %s", path, r.text)
	return r.text
}

var tokenField = regexp.MustCompile(`name="token" value="([0-9a-f]+)"`)

// token is that of the forms of a page.
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
