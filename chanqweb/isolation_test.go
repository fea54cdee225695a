package chanqweb_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// rowOf returns the row of a queue on the overview.
func rowOf(t *testing.T, page, queue string) string {
	t.Helper()
	_, row, found := strings.Cut(page, `id="q-`+queue+`"`)
	require.True(t, found, "%s is listed", queue)
	row, _, _ = strings.Cut(row, "</tr>")
	return row
}

// locks are statements that lock the table of the queue locked until their transaction ends, so that its counts cannot be read.
var locks = map[string]string{
	"postgres":  "LOCK TABLE chanq_locked",
	"sqlserver": "DECLARE @n int; SELECT @n = COUNT(*) FROM dbo.chanq_locked WITH (TABLOCKX)",
}

// overview returns the overview, which must come within half a second.
func (s *site) overview() string {
	s.t.Helper()
	began := time.Now()
	page := s.see("/")
	require.LessOrEqual(s.t, time.Since(began), 500*time.Millisecond)
	return page
}

// Another program holds a lock on the tables of one queue.
func TestALockedQueueDelaysNoOther(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.Emulator, testdb.Postgres} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			testdb.InBubble(t, e.Bubble, func(t *testing.T) {
				shop := &shop{webshop.New(t, e)}
				shop.Send(shop.Queue("locked", chanq.Config{}), chanq.Message[[]byte]{Body: []byte("x")})
				s := shop.open(everything, func(c *chanqweb.Config) { c.Timeout = 3 * time.Second })
				require.Contains(t, rowOf(t, s.see("/"), "locked"), `state=ready">1<`)
				tx, err := shop.DB.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer tx.Rollback()
				_, err = tx.ExecContext(t.Context(), locks[e.Dialect.Name()])
				require.NoError(t, err)
				for i := range 7 { // 14 s
					shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})
					time.Sleep(2 * time.Second)
					page := s.overview()
					require.NotContains(t, rowOf(t, page, "mail"), " old<", i)
					require.NotContains(t, rowOf(t, page, "mail"), `state=ready">0<`, i)
					locked := rowOf(t, page, "locked")
					require.Contains(t, locked, `state=ready">1<`, "its last figures")
					if i > 3 {
						require.Regexp(t, `figures \d+ s old</span>.*The database (did not answer in time|answers slowly)\.`, locked)
						require.Equal(t, 1, strings.Count(page, `<tr class="old">`))
					}
				}
				var others sync.WaitGroup
				began := time.Now()
				for range 6 { // more than may use one queue at once
					others.Go(func() {
						if r, err := s.client.Get(s.url + "/q/locked/messages"); err == nil {
							_ = r.Body.Close()
						}
					})
				}
				require.Contains(t, s.see("/q/mail/messages"), "Messages")
				require.Less(t, time.Since(began), time.Second, "a page of another queue")
				others.Wait()
				require.NoError(t, tx.Rollback())
				require.Eventually(t, func() bool { return !strings.Contains(rowOf(t, s.see("/"), "locked"), " old<") }, 15*time.Second, time.Second)
			})
		})
	}
}

var asOf = regexp.MustCompile(`id="asof" hidden data-age="(\d+)"`)

// watchers opens streams of events of the overview for some seconds, and returns how many statements they cost, and the oldest figures that an
// event showed.
func (s *shop) watchers(site *site, n int, lasts time.Duration) (statements int, oldest time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	statements = s.statements(func() {
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 37 * time.Millisecond % (2 * time.Second))
				next, end := site.follow("/live")
				defer end()
				for began := time.Now(); time.Since(began) < lasts; {
					event := next()
					found := asOf.FindStringSubmatch(event)
					if found == nil {
						s.T.Error("no age in " + event)
						return
					}
					age, _ := strconv.Atoi(found[1])
					mu.Lock()
					oldest = max(oldest, time.Duration(age)*time.Millisecond)
					mu.Unlock()
					if strings.Contains(event, " old<") {
						s.T.Error("old figures")
					}
				}
			})
		}
		all.Wait()
	})
	return statements, oldest
}

func TestManyViewersCostAsMuchAsOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		for i := range 29 {
			shop.Queue(fmt.Sprintf("queue%d", i), chanq.Config{})
		}
		s := shop.open(chanqweb.Rights{})
		s.see("/")
		const lasts = 20 * time.Second
		time.Sleep(lasts)
		one, oldest := shop.watchers(s, 1, lasts)
		require.LessOrEqual(t, oldest, 5*time.Second)
		time.Sleep(lasts)
		viewers := 100
		if testing.Short() { // with the race detector
			viewers = 20
		}
		many, oldest := shop.watchers(s, viewers, lasts)
		require.LessOrEqual(t, oldest, 5*time.Second)
		require.LessOrEqual(t, many, one*13/10, "they watch for up to 2 s longer in all; one viewer: %d", one)
		time.Sleep(time.Minute)
		require.Zero(t, shop.statements(func() { time.Sleep(time.Minute) }), "nobody looks")
	})
}

// slow makes each statement with a word take a time.
func (s *shop) slow(d time.Duration, word string) {
	s.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
		if op.Kind != faultdb.Query && op.Kind != faultdb.Exec && op.Kind != faultdb.Connect || !strings.Contains(op.Text, word) {
			return f
		}
		gate := make(chan struct{})
		time.AfterFunc(d, func() { close(gate) })
		return faultdb.Hold(gate)
	})
}

func TestTheFirstOverviewOfManyQueuesFarAwayIsFast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := &shop{webshop.New(t, testdb.Emulator)}
		for i := range 99 {
			shop.Queue(fmt.Sprintf("queue%02d", i), chanq.Config{})
		}
		s := shop.open(chanqweb.Rights{})
		shop.slow(5*time.Millisecond, "")
		defer shop.Faults.Inject(nil)
		began := time.Now()
		page := s.see("/")
		t.Logf("the first overview: %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
		require.Equal(t, 100, strings.Count(page, `data-label="Ready"`))
		require.NotContains(t, page, "not answered")
		next, end := s.follow("/live")
		defer end()
		for range 5 {
			next()
			began := time.Now()
			require.NotContains(t, next(), " old<")
			require.LessOrEqual(t, time.Since(began), 2500*time.Millisecond, "an event every 2 s")
		}
	})
}

func TestAViewerAboveTheLimitAsksAgainUntilThereIsRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t).open(chanqweb.Rights{}, func(c *chanqweb.Config) { c.MaxLive = 1 })
		next, end := s.follow("/live")
		require.Contains(t, next(), "mail")
		poll := s.get("/live")
		require.Equal(t, http.StatusOK, poll.StatusCode)
		require.True(t, strings.HasPrefix(poll.text, "retry: 10000\nevent: poll\ndata: "), poll.text)
		require.Contains(t, poll.text, `data-most="1"`)
		require.Contains(t, poll.text, "mail", "it has the figures")
		end()
		require.Eventually(t, func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/live", nil)
			require.NoError(t, err)
			response, err := s.client.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			first := make([]byte, 20)
			_, err = response.Body.Read(first)
			require.NoError(t, err)
			return strings.HasPrefix(string(first), "retry: 3000\ndata: ")
		}, patience, tick, "there is room")
	})
}

// As many searches as may use the queue last for 2 s each.
func TestAChangeDoesNotWaitForSearches(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.Emulator, testdb.Postgres} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			testdb.InBubble(t, e.Bubble, func(t *testing.T) {
				shop := &shop{webshop.New(t, e)}
				shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})
				s := shop.open(everything)
				token := s.token("/q/mail/")
				var searching atomic.Int64
				shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
					if op.Kind != faultdb.Query || !strings.Contains(op.Text, "q.last_error, q.headers") {
						return f
					}
					searching.Add(1)
					gate := make(chan struct{})
					time.AfterFunc(1900*time.Millisecond, func() { close(gate) })
					return faultdb.Hold(gate)
				})
				var all sync.WaitGroup
				for range 6 {
					all.Go(func() {
						if r, err := s.client.Get(s.url + "/q/mail/find?text=nothing"); err == nil {
							_ = r.Body.Close()
						}
					})
				}
				require.Eventually(t, func() bool { return searching.Load() >= 4 }, patience, tick)
				began := time.Now()
				require.Contains(t, s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token).text, "The queue is paused")
				require.Less(t, time.Since(began), time.Second)
				require.LessOrEqual(t, searching.Load(), int64(4), "the searches have a limit")
				all.Wait()
			})
		})
	}
}

// A driver that ignores the end of its context delays no request beyond Config.Timeout, and uses up no connection of other queues.
func TestADriverThatHangsDelaysNoRequestLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything, func(c *chanqweb.Config) { c.Timeout = time.Second })
		token := s.token("/q/mail/")
		s.see("/")
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		defer open()
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if op.Kind == faultdb.Query || op.Kind == faultdb.Exec {
				return faultdb.Stick(gate)
			}
			return f
		})
		time.Sleep(3 * time.Second)
		for _, path := range []string{"/q/mail/messages", "/q/mail/failures", "/schedules", "/q/mail/m/" + chanq.NewID().String()} {
			began := time.Now()
			r := s.get(path)
			require.Equal(t, http.StatusServiceUnavailable, r.StatusCode, path)
			require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond, path)
			require.Equal(t, "5", r.Header.Get("Refresh"), "the browser asks again")
			require.Contains(t, r.text, "Try again")
		}
		s.overview()
		s.see("/q/mail/")

		began := time.Now()
		r := s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token)
		require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		shop.Faults.Inject(nil)
		open()
		time.Sleep(time.Minute)
		if shop.Stats(shop.Mail).Paused {
			require.Contains(t, r.text, "the outcome is unknown")
			require.Contains(t, r.text, `/q/mail/">Look at the queue</a>`)
		}
	})
}

func TestAStatementThatHangsDelaysItsRequestUpToTheTimeout(t *testing.T) {
	for path, word := range map[string]string{"messages": "WITH c AS MATERIALIZED", "m/" + chanq.NewID().String(): "substr(CAST(body"} {
		testdb.InBubble(t, true, func(t *testing.T) {
			shop := newShop(t)
			s := shop.open(everything, func(c *chanqweb.Config) { c.Timeout = time.Second })
			s.see("/q/mail/")
			gate := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(gate) })
			var hung atomic.Int64
			shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
				if op.Kind == faultdb.Query && strings.Contains(op.Text, word) {
					hung.Add(1)
					return faultdb.Stick(gate)
				}
				return f
			})
			defer shop.Faults.Inject(nil)
			began := time.Now()
			require.Equal(t, http.StatusServiceUnavailable, s.get("/q/mail/"+path).StatusCode)
			require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
			require.EqualValues(t, 1, hung.Load())
			s.overview()
		})
	}
}

// Another program holds the write lock of the file. The visitor is told that the change was given up, and it is not applied later.
func TestAChangeOfALockedFileIsGivenUp(t *testing.T) {
	testdb.Long(t)
	w := testdb.New(t, testdb.SQLite)
	w.Open()
	shop := &shop{&webshop.Shop{T: t, DB: w.DB, Faults: w.Faults}}
	shop.Mail = shop.Queue("mail", chanq.Config{})
	shop.Kill(shop.Mail, "x", nil, fmt.Errorf("no"))
	s := shop.open(everything, func(c *chanqweb.Config) { c.Timeout = 2 * time.Second })
	token := s.token("/q/mail/")
	key := groupKey(t, s.see("/q/mail/failures"), "no")
	program, err := sql.Open("sqlite", "file:"+w.Address)
	require.NoError(t, err)
	defer program.Close()
	foreign, err := program.Conn(t.Context())
	require.NoError(t, err)
	defer foreign.Close()
	_, err = foreign.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	for _, fields := range [][]string{{"do", "pause", "reason", "x", "sure", "yes"}, {"do", "redrive", "group", key}} {
		began := time.Now()
		r := s.post("mail", append(fields, "token", token)...)
		require.Less(t, time.Since(began), 10*time.Second, "on a machine that is busy")
		t.Logf("%v ended after %v", fields[:2], time.Since(began))
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Regexp(t, "Nothing was changed|(?s)the outcome is unknown.*Look at the queue</a>", r.text, fields)
	}
	require.Contains(t, s.see("/"), `id="q-mail"`)
	_, err = foreign.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.Never(t, func() bool {
		stats := shop.Stats(shop.Mail)
		return stats.Paused || stats.Dead != 1
	}, 4*time.Second, time.Second, "it is not applied later")
	require.Contains(t, s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token).text, "The queue is paused")
}

// A change whose confirmation is lost.
func TestAnUnknownOutcomeIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		token := s.token("/q/mail/")
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if op.Kind != faultdb.Prepare && strings.HasPrefix(strings.TrimSpace(op.Text), "UPDATE") {
				return faultdb.Fail(context.DeadlineExceeded).Applied()
			}
			return f
		})
		r := s.post("mail", "do", "pause", "reason", "x", "sure", "yes", "token", token)
		shop.Faults.Inject(nil)
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Contains(t, r.text, "the outcome is unknown")
		require.Contains(t, r.text, `/q/mail/">Look at the queue</a>`)
		require.True(t, shop.Stats(shop.Mail).Paused)
		require.Contains(t, s.see("/q/mail/"), "paused for ")
	})
}
