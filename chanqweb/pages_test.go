package chanqweb_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

var address = regexp.MustCompile(`(?:href|src|data-live|action)="([^"]*)"`)

// crawl requests every page that links lead to, and returns them.
func (s *site) crawl() map[string]string {
	s.t.Helper()
	pages := map[string]string{}
	next := []string{s.url + "/"}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if _, seen := pages[at]; seen || strings.Contains(at, "/live") || strings.HasSuffix(at, "/change") || strings.HasSuffix(at, "/find") {
			continue // not pages
		}
		require.True(s.t, strings.HasPrefix(at, s.url+"/"), "%s leads out of the page", at)
		r := s.get(strings.TrimPrefix(at, s.url))
		require.Equal(s.t, http.StatusOK, r.StatusCode, at)
		pages[at] = r.text
		for _, found := range address.FindAllStringSubmatch(r.text, -1) {
			link, err := r.Request.URL.Parse(html.UnescapeString(found[1]))
			require.NoError(s.t, err)
			link.Fragment = ""
			next = append(next, link.String())
		}
	}
	return pages
}

// Every link of a page leads to an existing page under the prefix, and every page obeys the policy,
// which forbids inline content.
func TestEveryLinkOfEveryPageLeadsToAPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Fill()
		s := shop.open(everything, func(c *chanqweb.Config) { c.History = webshop.Waves{} })
		pages := s.crawl()
		require.Greater(t, len(pages), 100)
		inline := regexp.MustCompile(`(?i)<style|\sstyle=|<script(?:[^>]*)>[^<]|\son[a-z]+=|javascript:|https?://`)
		for at, text := range pages {
			if strings.Contains(at, "/assets/") || strings.HasSuffix(at, "/body") {
				continue
			}
			require.NotRegexp(t, inline, text, at)
		}
		kinds := map[string]bool{}
		for at := range pages {
			u, err := url.Parse(at)
			require.NoError(t, err)
			parts := strings.Split(strings.TrimPrefix(u.Path, "/ops/queues/"), "/")
			kinds[parts[0]+strings.Join(parts[min(2, len(parts)):min(3, len(parts))], "")] = true
		}
		require.Subset(t, []string{"", "q", "qmessages", "qm", "qfailures", "qconsumers", "qslots", "qchanges", "assets", "schedules", "batches", "changes"}, keysOf(kinds))
		require.Len(t, kinds, 12)
	})
}

func keysOf(m map[string]bool) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func TestEveryAnswerCarriesThePolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t).open(chanqweb.Rights{})
		for path, status := range map[string]int{
			"/": 200, "/q/mail/": 200, "/q/mail": 200, "/q/nothing/": 404, "/q/No-Name/": 404, "/elsewhere": 404, "/q/mail/m/x": 404, "/q/mail/slots": 404,
			"/q/mail/m/" + chanq.NewID().String(): 404, "/q/mail/messages?state=odd": 404, "/q/mail/messages?from=odd": 400, "/q/mail/find?text=": 400, "/q/mail/find?text=x&from=odd": 400, "/q/mail/find?text=%ff": 400,
			"/assets/style.css": 200, "/assets/none": 404, "/q/mail/change": 404, "/assets/..%2fchanqweb.go": 404,
		} {
			r := s.get(path)
			require.Equal(t, status, r.StatusCode, path)
			policy := r.Header.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'", path)
			require.NotContains(t, policy, "unsafe", path)
			require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"), path)
			require.Equal(t, "no-store", r.Header.Get("Cache-Control"), path)
		}
		style := regexp.MustCompile(`assets/style\.css\?v=[0-9a-f]+`).FindString(s.see("/"))
		require.Contains(t, s.get("/"+style).Header.Get("Cache-Control"), "immutable")
	})
}

func TestAListIsReadPageByPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Fill()
		s := shop.open(chanqweb.Rights{})
		id := regexp.MustCompile(`class="id" href="[^"]*/m/([0-9a-f-]{36})"`)
		next := regexp.MustCompile(`id="next" href="([^"]*)"`)
		read := func(at, query string) (seen []string) {
			for {
				text := s.see(at + query)
				for _, found := range id.FindAllStringSubmatch(text, -1) {
					seen = append(seen, found[1])
				}
				more := next.FindStringSubmatch(text)
				if more == nil {
					return seen
				}
				query = html.UnescapeString(more[1])
			}
		}
		seen := read("/q/mail/messages", "?state=ready")
		list, err := testdb.Peek(t.Context(), shop.Mail, chanqadmin.StateReady, 1000)
		require.NoError(t, err)
		var want []string
		for _, e := range list {
			want = append(want, e.ID.String())
		}
		require.NotEmpty(t, want)
		require.Equal(t, want, seen)

		ms := make([]chanq.Message[[]byte], 120)
		for i := range ms {
			ms[i] = chanq.Message[[]byte]{Body: []byte("x"), Type: "to.find"}
		}
		shop.Send(shop.Mail, ms...)
		require.Len(t, read("/q/mail/find", "?text=to.find"), len(ms))
	})
}

func TestAMessageIsFoundByItsID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		ids := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("hello")})
		s := shop.open(chanqweb.Rights{})
		r := s.get("/q/mail/find?text=" + ids[0].String())
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Equal(t, s.url+"/q/mail/m/"+ids[0].String(), r.Request.URL.String())
	})
}

// Hidden content is on no page, in any encoding. Shown content is.
func TestBodiesAndHeadersAreHiddenUnlessTheyAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const secret, token = "S3CRET-body", "S3CRET-header"
		shop := newShop(t)
		dead := shop.Kill(shop.Mail, secret, map[string]string{"token": token}, fmt.Errorf("no"))[0]
		live := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte(`"` + secret + `"`), Headers: map[string]string{"token": token}})[0]
		hidden := shop.open(chanqweb.Rights{Change: true})
		for at, text := range hidden.crawl() {
			require.NotContains(t, text, "S3CRET", at)
			require.NotContains(t, text, "UzNDUkVU", at)    // in base64
			require.NotContains(t, text, "53 33 43 52", at) // in hex
		}
		for _, id := range []chanq.ID{dead, live} {
			require.Equal(t, http.StatusForbidden, hidden.get("/q/mail/m/"+id.String()+"/body").StatusCode)
			shown := shop.open(chanqweb.Rights{Bodies: true})
			require.Contains(t, shown.see("/q/mail/m/"+id.String()), secret)
			require.Contains(t, shown.see("/q/mail/m/"+id.String()), token)
			require.Contains(t, shown.see("/q/mail/m/"+id.String()+"?as=hex"), "53 33 43 52")
			whole := shown.get("/q/mail/m/" + id.String() + "/body")
			require.Contains(t, whole.text, secret)
			require.Equal(t, "application/octet-stream", whole.Header.Get("Content-Type"))
			require.Contains(t, whole.Header.Get("Content-Disposition"), "attachment")
		}
	})
}

// letter is a body that a codec decodes.
type letter struct {
	Number int
}

// The error of a decoder may repeat the body, so it is hidden with the body.
func TestErrorsOfADecoderAreHiddenLikeBodies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte(`{"Number":"x","S3CRET":1}`)}, chanq.Message[[]byte]{Body: []byte(`S3CRET`)})
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte(`{}`)})
		_, err := shop.DB.ExecContext(t.Context(), `UPDATE chanq_mail SET headers = CAST('{"S3CRET' AS BLOB) WHERE body = CAST('{}' AS BLOB)`)
		require.NoError(t, err)
		reader, err := chanq.Open[letter](t.Context(), shop.DB, "mail", chanq.Config{Codec: frank{}})
		require.NoError(t, err)
		testdb.RequireNone(t, reader)
		dead, err := testdb.Peek(t.Context(), shop.Mail, chanqadmin.StateDead, 10)
		require.NoError(t, err)
		require.Len(t, dead, 3)
		hidden := shop.open(chanqweb.Rights{Change: true})
		for at, text := range hidden.crawl() {
			require.NotContains(t, text, "S3CRET", at)
			require.NotContains(t, text, "looking for beginning", at)
		}
		text := hidden.see("/q/mail/failures")
		require.Contains(t, text, "chanq: cannot decode: headers (why is hidden, as bodies are)")
		require.Contains(t, text, "chanq: cannot decode (why is hidden, as bodies are)")
		r := hidden.post("mail", "do", "redrive", "group", groupKey(t, text, "chanq: cannot decode (why"), "back", "failures", "token", hidden.token("/q/mail/failures"))
		require.Contains(t, r.text, "One message is ready again")
		require.NotContains(t, hidden.log.String(), "S3CRET")
		require.Contains(t, shop.open(everything).see("/q/mail/failures"), "unexpected end of JSON", "a visitor with the permission to see bodies sees the reason")
	})
}

// frank is a codec whose errors contain the data that it could not decode.
type frank struct{ chanq.Codec }

func (frank) Decode(data []byte, _ any) error { return fmt.Errorf("%s is no letter", data) }
func (frank) Encode(any) ([]byte, error)      { return nil, nil }

func TestARedactorSeesEveryTextBeforeItIsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Kill(shop.Mail, "S3CRET", map[string]string{"token": "S3CRET"}, fmt.Errorf("no S3CRET"), fmt.Errorf("S3CRET %w", http.ErrAbortHandler))
		payments := shop.Queue("payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 2}})
		shop.Send(payments, chanq.Message[[]byte]{Key: "S3CRET", Body: []byte("S3CRET")})
		s := shop.open(everything, func(c *chanqweb.Config) {
			c.Redact = func(queue string, e *chanqadmin.Entry) {
				if !strings.Contains("mail payments", queue) {
					t.Error(queue)
				}
				e.LastError = strings.ReplaceAll(e.LastError, "S3CRET", "***")
				e.Key, e.Body = strings.ReplaceAll(e.Key, "S3CRET", "***"), []byte("***")
				for name := range e.Headers {
					e.Headers[name] = "***"
				}
			}
		})
		for at, text := range s.crawl() {
			require.NotContains(t, text, "S3CRET", at)
		}
	})
}

func TestFailuresAreGroupedByCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Fill()
		text := shop.open(chanqweb.Rights{}).see("/q/mail/failures")
		require.Contains(t, text, "60 dead messages.")
		order := []string{"<h2>550 5.1.1 user ", "<b class=\"count\">41</b>", "<h2>dial tcp 10.0.0.", "<b class=\"count\">12</b>", "<h2>template &#34;welcome-", "<b class=\"count\">6</b>", "<h2>panic: runtime error: index out of range", "<b class=\"count\">1</b>"}
		at := 0
		for _, cause := range order {
			i := strings.Index(text[at:], cause)
			require.GreaterOrEqual(t, i, 0, cause)
			at += i
		}
		require.Equal(t, 4, strings.Count(text, `<li id="c-rejected-`))
	})
}

func TestAMessageHasItsTypeAndTheCauseOfItsDeath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		live := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x"), Type: "invoice<1>"})[0]
		s := shop.open(chanqweb.Rights{})
		text := s.see("/q/mail/m/" + live.String())
		require.Contains(t, text, "<dt>Type</dt><dd>invoice&lt;1&gt;</dd>")
		require.NotContains(t, text, "<dt>Cause</dt>")
		require.NoError(t, testdb.Lease(t, shop.Mail, 1, time.Minute)[0].Nack(chanq.DeadLetter(fmt.Errorf("no stock"))))
		text = s.see("/q/mail/m/" + live.String())
		require.Contains(t, text, "<dt>Type</dt><dd>invoice&lt;1&gt;</dd>")
		require.Contains(t, text, "<dt>Cause</dt><dd>rejected</dd>")
		group := regexp.MustCompile(`failures#(c-rejected-[0-9a-f]{16})"`).FindStringSubmatch(text)
		require.NotNil(t, group)
		require.Contains(t, s.see("/q/mail/failures"), `<li id="`+group[1]+`">`, "where its link leads")
	})
}

func TestConsumersAreListedWithTheirMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Fill()
		text := shop.open(chanqweb.Rights{}).see("/q/mail/consumers")
		for name, holds := range map[string]string{"mailer-1": "12", "mailer-2": "7"} {
			require.Regexp(t, `(?s)>`+name+`<.*?data-label="Holds">`+holds+`<`, text)
		}
	})
}

// Its program is killed: its row is not renewed. The longest-held message is first.
func TestTheLeasesOfAConsumerThatIsNotHeardAreReleasedOnItsPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("a")})
		shop.Consume(shop.Mail, "low", 2)
		time.Sleep(3 * time.Second)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("b"), Priority: chanq.PriorityHigh})
		time.Sleep(3 * time.Second)
		s := shop.open(everything)
		page := s.see("/q/mail/messages?state=leased")
		held := regexp.MustCompile(`data-label="Held for">([^<]*)<`).FindAllStringSubmatch(page, -1)
		require.Len(t, held, 2)
		require.Equal(t, []string{"6 s", "3 s"}, []string{held[0][1], held[1][1]}, "whatever their priorities")
		of := regexp.MustCompile(`consumers\?of=([0-9a-f-]+)#messages">low<`).FindStringSubmatch(s.see("/q/mail/consumers"))
		require.NotNil(t, of)
		page = s.see("/q/mail/consumers?of=" + of[1])
		require.Equal(t, 2, strings.Count(page, `data-label="Held for"`))
		require.NotContains(t, page, "Release leases", "it is heard")
		require.NotContains(t, page, "not heard")
		release := func(sure string) reply {
			return s.post("mail", "token", s.token("/q/mail/"), "do", "release", "id", of[1], "back", "consumers", "sure", sure)
		}
		r := release("yes")
		require.Equal(t, http.StatusConflict, r.StatusCode)
		require.Contains(t, r.text, "This consumer is running.")
		id, err := chanq.ParseID(of[1])
		require.NoError(t, err)
		_, err = shop.DB.ExecContext(t.Context(), "UPDATE chanq__consumers SET heard_at = heard_at - 60000 WHERE id = ?", id[:])
		require.NoError(t, err)
		page = s.see("/q/mail/consumers?of=" + of[1])
		require.Contains(t, page, "not heard for 1 min")
		require.Contains(t, page, "Release leases")
		r = release("")
		require.Contains(t, r.text, "Release 2 messages of queue mail?")
		require.Contains(t, r.text, "If a handler of this consumer still runs")
		require.Equal(t, 2, shop.Stats(shop.Mail).Leased)
		r = release("yes")
		require.Contains(t, r.text, "2 messages are released.")
		require.NotContains(t, shop.open(chanqweb.Rights{}).see("/q/mail/consumers?of="+of[1]), "Release leases", "without the right")
	})
}

// The rows of an ordered queue do not say which messages a consumer has had for a short time.
func TestTheReleaseOfAConsumerOfAnOrderedQueueFreesItsSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		q := shop.Queue("sorted", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
		shop.Send(q, chanq.Message[[]byte]{Body: []byte("a")})
		shop.Consume(q, "low", 1)
		s := shop.open(everything)
		_, err := shop.DB.ExecContext(t.Context(), "UPDATE chanq__consumers SET heard_at = heard_at - 60000")
		require.NoError(t, err)
		list, err := testdb.Admin(q).Consumers(t.Context())
		require.NoError(t, err)
		release := func(sure string) reply {
			return s.post("sorted", "token", s.token("/q/sorted/"), "do", "release", "id", list[0].ID.String(), "back", "consumers", "sure", sure)
		}
		require.Contains(t, release("").text, "Its slots become free as well")
		require.Contains(t, release("yes").text, "The slots of the consumer are free. 0 messages are released.")
		list, err = testdb.Admin(q).Consumers(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

// Nothing runs but the web UI.
func TestTheChartsHaveTheCountsThatTheWebUIHasRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("a")})
		s := shop.open(chanqweb.Rights{})
		for range 20 {
			s.see("/q/mail/")
			time.Sleep(2 * time.Second)
		}
		require.Regexp(t, `ready <b>1</b>`, s.see("/q/mail/"))
		require.NotContains(t, s.see("/q/mail/"), "There is no history")
	})
}

func TestTheChartsHaveTheTimesOfHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("a")}, chanq.Message[[]byte]{Body: []byte("slow")})
		time.Sleep(3 * time.Minute)
		c := testdb.Start(t, shop.Mail, chanq.ConsumerConfig{})
		time.AfterFunc(12*time.Second, c.Stop)
		require.NoError(t, c.Handle(1, func(_ context.Context, l *chanq.Lease[[]byte]) error {
			time.Sleep(time.Duration(len(l.Body)*len(l.Body)*len(l.Body)) * 50 * time.Millisecond)
			return nil
		}))
		page := shop.open(chanqweb.Rights{}).see("/q/mail/?span=day")
		require.Regexp(t, `(?s)<strong>Waiting</strong>.*p50 <b>3 min 16 s</b>.*p95 <b>4 min 15 s</b>`, page)
		require.Regexp(t, `(?s)<strong>Handler time</strong>.*p50 <b>64 ms</b>.*p95 <b>3 s</b>`, page)
	})
}

func TestACauseHasItsLastHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		c := testdb.Start(t, shop.Mail, chanq.ConsumerConfig{})
		for _, of := range []struct {
			messages int
			then     time.Duration
		}{{2, 10 * time.Minute}, {4, 30 * time.Second}} {
			shop.Send(shop.Mail, make([]chanq.Message[[]byte], of.messages)...)
			for range of.messages {
				require.NoError(t, (<-c.C()).Nack(chanq.DeadLetter(errors.New("no such account"))))
			}
			require.NoError(t, c.Flush(t.Context()))
			time.Sleep(of.then)
		}
		page := shop.open(chanqweb.Rights{}).see("/q/mail/failures")
		require.Contains(t, page, `6 in the last hour`)
		require.Contains(t, page, `<path d="M49 10v-5.0h.8V10zM59 10v-10.0h.8V10z"/>`)
	})
}

func TestTheWebUIReportsAMissingHistory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		text := shop.open(chanqweb.Rights{}, func(c *chanqweb.Config) { c.History = webshop.Waves{} }).see("/q/mail/?span=week")
		require.NotContains(t, text, "There is no history")
		require.Contains(t, text, "7 days ago")
		_, err := shop.DB.ExecContext(t.Context(), "DROP TABLE chanq__samples")
		require.NoError(t, err)
		require.Contains(t, shop.open(chanqweb.Rights{}).see("/q/mail/"), "its table is missing")
		shop.open(chanqweb.Rights{}).see("/")
	})
}

// statements counts the statements that a function has sent.
func (s *shop) statements(f func()) int {
	var n atomic.Int64
	s.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
		if op.Kind == faultdb.Query || op.Kind == faultdb.Exec {
			n.Add(1)
		}
		return f
	})
	defer s.Faults.Inject(nil)
	f()
	return int(n.Load())
}

// The figures of a queue are read from the database once per second, for any number of visitors.
func TestFreshFiguresAreNotReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(chanqweb.Rights{})
		s.see("/")
		began := time.Now()
		asked := shop.statements(func() {
			for range 20 {
				s.see("/")
			}
		})
		// One statement for the names of the queues each time, and the figures of the queue.
		require.LessOrEqual(t, asked, 20+1+int(time.Since(began)/time.Second), "the figures of a queue are a second old")
	})
}

func TestAnUnavailableDatabaseIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(chanqweb.Rights{})
		shop.Faults.Inject(func(faultdb.Op) faultdb.Fault {
			return faultdb.Fail(fmt.Errorf("SQLSTATE 28P01: password of user S3CRET at host db7"))
		})
		for range 3 {
			r := s.get("/q/mail/")
			require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
			require.Contains(t, r.text, "The database returned an error")
		}
		require.Equal(t, 1, strings.Count(s.log.String(), "user S3CRET at host db7"), "the log has the whole error, once a minute")
		shop.Faults.Inject(nil)
		time.Sleep(3 * time.Second)
		s.see("/q/mail/")
	})
}

func TestSchedulesAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(chanqweb.Rights{})
		require.Contains(t, s.see("/"), `href="./schedules"`)
		require.Contains(t, s.see("/schedules"), "There is no schedule.", "without the table")
		require.NoError(t, chanqcron.Migrate(t.Context(), shop.DB, chanq.Config{}))
		cron := chanqcron.New(shop.DB, shop.Mail)
		for _, name := range []string{"nightly", "<b>bold</b>"} {
			require.NoError(t, cron.Ensure(t.Context(), chanqcron.Schedule[[]byte]{
				Name: name, Line: "30 2 * * mon-fri", Zone: "Europe/Berlin", Message: chanq.Message[[]byte]{Type: "report"}}))
		}
		require.NoError(t, cron.Pause(t.Context(), "<b>bold</b>", "ann", "a <i>reason</i>"))
		text := s.see("/schedules")
		for _, want := range []string{"nightly", "&lt;b&gt;bold&lt;/b&gt;", `q/mail/">mail</a>`, "<code>30 2 * * mon-fri</code>", "Europe/Berlin", "report", "by ann: a &lt;i&gt;reason&lt;/i&gt;"} {
			require.Contains(t, text, want)
		}
		require.Equal(t, 1, strings.Count(text, ">paused<"))
	})
}

// After any failure on any page, the database's error is in the log and on no page.
func TestErrorsOfTheDatabaseAreOnNoPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t) // without consumers, whose statements would be among those of pages
		dead := shop.Kill(shop.Mail, "x", nil, fmt.Errorf("no"))
		shop.Send(shop.Queue("payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 2}}), chanq.Message[[]byte]{Key: "k", Body: []byte("x")})
		paths := []string{
			"/", "/q/mail/", "/q/mail/messages?state=dead", "/q/mail/failures", "/q/mail/consumers", "/q/payments/slots", "/schedules", "/batches", "/q/mail/m/" + dead[0].String(),
		}
		for _, path := range paths {
			failed := 1
			for at := 1; failed > 0; at++ { // each statement of the page in turn, until none is left to fail
				failed = 0
				n, logged := 0, 0
				s := shop.open(everything)
				shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
					if op.Kind != faultdb.Query && op.Kind != faultdb.Exec {
						return f
					}
					if n++; n < at {
						return f
					}
					failed++
					if path != "/" || !strings.Contains(op.Text, "chanq__samples") { // findings do without a history that cannot be read
						logged++
					}
					return faultdb.Fail(fmt.Errorf("user S3CRET in %s", op.Text))
				})
				r := s.get(path)
				shop.Faults.Inject(nil)
				require.NotContains(t, r.text, "S3CRET", "%s, from statement %d on", path, at)
				require.NotContains(t, r.text, "SELECT", "%s, from statement %d on", path, at)
				if logged > 0 {
					require.Contains(t, s.log.String(), "S3CRET", "%s, from statement %d on", path, at)
				}
			}
		}
		s := shop.open(everything)
		shop.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Fail(fmt.Errorf("user S3CRET")) })
		defer shop.Faults.Inject(nil)
		next, end := s.follow("/q/mail/live?span=hour")
		defer end()
		text := next()
		require.Contains(t, text, "No figures since")
		require.NotContains(t, text, "S3CRET")
	})
}

func TestAHungDatabaseDelaysAPageUpToItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(chanqweb.Rights{}, func(c *chanqweb.Config) { c.Timeout = 50 * time.Millisecond })
		shop.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Hang() })
		defer shop.Faults.Inject(nil)
		r := s.get("/q/mail/")
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Contains(t, r.text, "did not answer in time")
	})
}

func TestAConfigIsChecked(t *testing.T) {
	_, err := chanqweb.New(nil, chanqweb.Config{Timeout: -1, MaxLive: -1, Secret: []byte("short")})
	for _, wrong := range []string{"db must not be nil", "Timeout", "MaxLive", "Secret"} {
		require.ErrorContains(t, err, wrong)
	}
}

func TestFailuresShowWhatWaitsForARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		for range 2 {
			shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x"), Priority: chanq.PriorityUrgent})
		}
		leases := testdb.Lease(t, shop.Mail, 2, time.Minute)
		for i, l := range leases {
			require.NoError(t, l.Nack(chanq.RetryAfter(time.Hour, fmt.Errorf("order %d <has> no customer", i))))
			require.NoError(t, l.Wait(t.Context()))
		}
		s := shop.open(chanqweb.Rights{})
		page := s.see("/q/mail/failures")
		require.Contains(t, page, "2 messages wait for a retry.")
		require.Contains(t, page, "&lt;has&gt; no customer")
		link := regexp.MustCompile(`href="[./]*(/q/mail/messages\?state=scheduled&amp;error=[0-9a-f]{16})"`).FindStringSubmatch(page)
		require.NotNil(t, link)
		listed := s.see(html.UnescapeString(link[1]))
		for _, l := range leases {
			require.Contains(t, listed, "/m/"+l.ID.String())
			require.Contains(t, s.see("/q/mail/m/"+l.ID.String()), "attempt failed")
		}
		require.Contains(t, s.see("/q/mail/messages?state=scheduled&error=0200000000000000"), "No message is scheduled.")
		require.Equal(t, http.StatusNotFound, s.get("/q/mail/messages?state=dead&error=0200000000000000").StatusCode)
		require.Contains(t, s.see("/"), "Failed / s")
	})
}
