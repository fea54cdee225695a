package chanqweb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"log/slog"
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
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// onEach runs a test on the three databases, on PostgreSQL in the long tier.
func onEach(t *testing.T, test func(*testing.T, *shop)) {
	for _, e := range []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.Postgres} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			t.Parallel()
			testdb.InBubble(t, e.Bubble, func(t *testing.T) { test(t, &shop{webshop.New(t, e)}) })
		})
	}
}

var (
	aForm   = regexp.MustCompile(`(?s)<form[^>]*method="post" action="([^"]*)"[^>]*>(.*?)</form>`)
	aHidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// press sends the first form of a page that has a button and contains a text, as a browser without JavaScript does. fields are names and
// values that the user has entered.
func (s *site) press(page reply, do, near string, fields ...string) reply {
	s.t.Helper()
	for _, form := range aForm.FindAllStringSubmatch(page.text, -1) {
		if !strings.Contains(form[2], `name="do" value="`+do+`"`) || !strings.Contains(form[2], near) {
			continue
		}
		values := url.Values{"do": {do}}
		for _, hidden := range aHidden.FindAllStringSubmatch(form[2], -1) {
			values.Add(html.UnescapeString(hidden[1]), html.UnescapeString(hidden[2]))
		}
		for i := 0; i < len(fields); i += 2 {
			values.Add(fields[i], fields[i+1])
		}
		to, err := page.Request.URL.Parse(html.UnescapeString(form[1]))
		require.NoError(s.t, err)
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, to.String(), strings.NewReader(values.Encode()))
		require.NoError(s.t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return s.do(r)
	}
	require.Fail(s.t, "no form", "with a button %s near %q in %s", do, near, page.text)
	return reply{}
}

// question is the form of a question.
var question = regexp.MustCompile(`(?s)<form class="ask".*?</form>`)

// asked returns the question of a page.
func (s *site) asked(page reply) string {
	s.t.Helper()
	require.Equal(s.t, http.StatusOK, page.StatusCode, page.text)
	found := question.FindString(page.text)
	require.NotEmpty(s.t, found, page.text)
	return html.UnescapeString(found)
}

// said requires that a page says something about a change, and asks nothing.
func (s *site) said(page reply, text string) reply {
	s.t.Helper()
	require.Equal(s.t, http.StatusOK, page.StatusCode, page.text)
	require.Empty(s.t, question.FindString(page.text))
	notice := regexp.MustCompile(`<p class="notice" role="status">(.*?)</p>`).FindStringSubmatch(page.text)
	require.NotNil(s.t, notice, page.text)
	require.Contains(s.t, html.UnescapeString(notice[1]), text)
	return page
}

func TestAQuestionNamesTheQueueTheCauseAndTheNumber(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		causes := []error{errors.New("disk full"), errors.New("disk full")}
		for i := range 101 {
			causes = append(causes, fmt.Errorf("user %d is <unknown>", i))
		}
		shop.Kill(shop.Mail, "x", nil, causes...)
		s := shop.open(everything)
		at := func(page reply, path string) {
			t.Helper()
			require.Equal(t, s.url+path, "http://"+page.Request.URL.Host+page.Request.URL.Path)
		}
		page := s.get("/q/mail/failures")
		many, few := groupKey(t, page.text, "user 100 is &lt;unknown&gt;"), groupKey(t, page.text, "disk full")
		asks := s.press(page, "redrive", many)
		at(asks, "/q/mail/failures")
		require.Contains(t, s.asked(asks), "Redrive 101 messages of queue mail?")
		require.Contains(t, s.asked(asks), "user 100 is <unknown>")
		require.Equal(t, 103, shop.Stats(shop.Mail).Dead)
		s.said(s.press(asks, "redrive", "asked"), "101 messages are ready again")
		require.Equal(t, 2, shop.Stats(shop.Mail).Dead)

		asks = s.press(page, "purge", few)
		require.Contains(t, s.asked(asks), "Purge 2 messages of queue mail?")
		require.Contains(t, s.asked(asks), "disk full")
		require.Empty(t, question.FindString(s.see("/q/mail/failures")), "No leads to the page without the question")
		s.said(s.press(page, "redrive", few), "2 messages are ready again")
		require.Zero(t, shop.Stats(shop.Mail).Dead, "few messages are redriven without a question")
		s.said(s.press(asks, "purge", "asked"), "No message was changed")

		ids := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("y")})
		asks = s.press(s.get("/q/mail/m/"+ids[0].String()), "cancel", "")
		at(asks, "/q/mail/m/"+ids[0].String())
		require.Contains(t, s.asked(asks), "Cancel one message of queue mail?")
		s.said(s.press(asks, "cancel", "asked"), "One message is cancelled")
	})
}

func TestAPauseNeedsAReason(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		s := shop.open(everything)
		asks := s.press(s.get("/q/mail/"), "pause", "")
		require.Contains(t, s.asked(asks), "Pause queue mail?")
		require.NotContains(t, s.asked(asks), "Give a reason")
		for _, empty := range []string{"", " \t"} {
			asks = s.press(asks, "pause", "asked", "reason", empty)
			require.Contains(t, s.asked(asks), "Give a reason, for the other operators. Nothing was changed.")
			require.False(t, shop.Stats(shop.Mail).Paused)
		}
		s.said(s.press(asks, "pause", "asked", "reason", "the printer burns"), "The queue is paused")
		require.True(t, shop.Stats(shop.Mail).Paused)
		s.said(s.press(s.get("/q/mail/"), "resume", ""), "The queue is resumed.")
		require.False(t, shop.Stats(shop.Mail).Paused)
	})
}

// Anyone can enter an address. It asks a question only of the visitor who has just sent the form.
func TestAQuestionIsShownToItsVisitor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		shop.Kill(shop.Mail, "x", nil, errors.New("disk full"))
		s := shop.open(everything)
		asks := s.press(s.get("/q/mail/failures"), "purge", "")
		own := strings.TrimPrefix(asks.Request.URL.String(), s.url)
		require.NotEmpty(t, question.FindString(s.see(own)), "loaded again")
		other := shop.open(everything)
		other.see("/q/mail/") // it has a cookie
		require.Empty(t, question.FindString(other.see(own)))
		require.Empty(t, question.FindString(s.see(strings.Replace(own, "do=purge", "do=redrive", 1))))
		time.Sleep(2 * time.Minute)
		require.Empty(t, question.FindString(s.see(own)), "it is long past")
	})
}

func TestAMessageThatIsGoneIsSaidToBeGone(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		s := shop.open(everything)
		id := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})[0]
		asks := s.press(s.get("/q/mail/m/"+id.String()), "cancel", "")
		require.NoError(t, testdb.Lease(t, shop.Mail, 1, time.Minute)[0].Ack())
		s.said(s.press(asks, "cancel", "asked"), "The message is gone: nothing was changed. It was acked, purged, cancelled or trimmed.")
		require.Equal(t, http.StatusNotFound, s.get("/q/mail/m/"+id.String()).StatusCode)

		id = shop.Kill(shop.Mail, "x", nil, errors.New("no"))[0]
		page := s.get("/q/mail/m/" + id.String())
		s.said(s.press(page, "redrive", ""), "One message is ready again")
		s.said(s.press(page, "redrive", ""), "The message is ready now: nothing was changed.")
		_, err := testdb.Admin(shop.Mail).Cancel(t.Context(), chanqadmin.Select{IDs: []chanq.ID{id}}, chanqadmin.Change{})
		require.NoError(t, err)

		keyed := chanq.Message[[]byte]{Body: []byte("x"), DedupKey: "k"}
		id = shop.Send(shop.Mail, keyed)[0]
		require.NoError(t, testdb.Lease(t, shop.Mail, 1, time.Minute)[0].Nack(chanq.DeadLetter(errors.New("no"))))
		shop.Send(shop.Mail, keyed)
		s.said(s.press(s.get("/q/mail/m/"+id.String()), "redrive", ""), "The message is still dead: one with its ID or dedup key is in the queue.")
	})
}

func TestScheduledMessagesAreRunAndCancelledFromThePage(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		later := func(key, kind string) chanq.Message[[]byte] {
			return chanq.Message[[]byte]{Body: []byte("x"), Delay: time.Hour, DedupKey: key, Type: kind}
		}
		ids := shop.Send(shop.Mail, later("", "bill"), later("a", "bill"), later("b", "note"), later("c", "note"), later("d", "note"))
		s := shop.open(everything)
		s.said(s.press(s.get("/q/mail/m/"+ids[0].String()), "run", ""), "One message is due now.")
		page := s.get("/q/mail/messages?state=scheduled")
		s.said(s.press(page, "run", "dedup", "dedup", "a"), "One message is due now.")
		s.said(s.press(page, "run", "dedup", "dedup", "a"), "The message is ready now: nothing was changed.")
		s.said(s.press(page, "run", "dedup", "dedup", "none"), "No ready, scheduled or leased message has this dedup key: nothing was changed.")
		stats := shop.Stats(shop.Mail)
		require.Equal(t, []int{2, 3}, []int{stats.Ready, stats.Scheduled})

		page = s.get("/q/mail/messages?state=scheduled&type=note")
		page = s.said(s.press(page, "run", "Choose ", "id", ids[2].String(), "id", ids[0].String()), "One message is due now. The others of the 2 have ended, or cannot be changed.")
		require.Equal(t, "note", page.Request.URL.Query().Get("type"), "the page before")
		asks := s.press(page, "cancel", "dedup", "dedup", "c")
		require.Contains(t, s.asked(asks), "Cancel one message of queue mail?")
		require.Equal(t, 2, shop.Stats(shop.Mail).Scheduled)
		s.said(s.press(asks, "cancel", "asked"), "One message is cancelled.")
		stats = shop.Stats(shop.Mail)
		require.Equal(t, []int{3, 1}, []int{stats.Ready, stats.Scheduled})

		line := shop.Queue("line", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 2}})
		id := shop.Send(line, chanq.Message[[]byte]{Key: "k", Body: []byte("x")})[0]
		require.NoError(t, testdb.Lease(t, line, 1, time.Minute)[0].Nack(chanq.RetryAfter(time.Hour, errors.New("no"))))
		for _, path := range []string{"/q/line/m/" + id.String(), "/q/line/messages?state=scheduled"} {
			require.NotContains(t, s.see(path), `value="run"`, "a message of an ordered queue waits for earlier ones")
		}
		require.Equal(t, http.StatusBadRequest, s.post("line", "do", "run", "id", id.String(), "token", s.token("/q/line/")).StatusCode)
	})
}

func TestAListShowsMessagesOfOneType(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		ids := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x"), Type: "a bill"}, chanq.Message[[]byte]{Body: []byte("x"), Type: "note"})
		s := shop.open(chanqweb.Rights{})
		all := s.see("/q/mail/messages")
		link := regexp.MustCompile(`href="(\?[^"]*)">a bill</a>`).FindStringSubmatch(all)
		require.NotNil(t, link, "the type of a message leads to those of its type")
		bills := s.see("/q/mail/messages" + html.UnescapeString(link[1]))
		require.Contains(t, bills, ids[0].String())
		require.NotContains(t, bills, ids[1].String())
		require.Contains(t, bills, `name="type" value="a bill"`)
		require.Contains(t, bills, `href="?state=dead&amp;type=a%20bill"`, "another state of the type")
		require.Contains(t, s.see("/q/mail/messages?state=ready&type=n%00o"), "No message is ready", "whatever is entered")
	})
}

func TestSchedulesAreChangedFromThePage(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		require.NoError(t, chanqcron.Migrate(t.Context(), shop.DB, chanq.Config{}))
		cron := chanqcron.New(shop.DB, shop.Mail)
		for _, name := range []string{"nightly", "<b>"} {
			require.NoError(t, cron.Ensure(t.Context(), chanqcron.Schedule[[]byte]{Name: name, Line: "30 2 * * *", Message: chanq.Message[[]byte]{Body: []byte("x")}}))
		}
		s := shop.open(everything)
		paused := func() (on []string) {
			list, err := cron.List(t.Context())
			require.NoError(t, err)
			for _, e := range list {
				if !e.Pause.Since.IsZero() {
					on = append(on, e.Name+" by "+e.Pause.By+": "+e.Pause.Reason)
				}
			}
			return on
		}
		const near = `value="nightly"`
		asks := s.press(s.get("/schedules"), "pause", near)
		require.Contains(t, s.asked(asks), "Pause schedule nightly of queue mail?")
		asks = s.press(asks, "pause", "asked", "reason", " ")
		require.Contains(t, s.asked(asks), "Give a reason")
		require.Empty(t, paused())
		page := s.said(s.press(asks, "pause", "asked", "reason", "holidays"), "Schedule nightly of queue mail is paused.")
		require.Equal(t, []string{"nightly by ada: holidays"}, paused())

		s.said(s.press(page, "run", near), "Schedule nightly of queue mail has sent message ")
		require.Equal(t, 1, shop.Stats(shop.Mail).Ready)
		s.said(s.press(page, "run", near), "did not send a message: the previous one, ")
		require.Equal(t, 1, shop.Stats(shop.Mail).Ready)
		s.said(s.press(page, "resume", near), "Schedule nightly of queue mail is resumed.")
		require.Empty(t, paused())

		asks = s.press(page, "remove", `value="&lt;b&gt;"`)
		require.Contains(t, s.asked(asks), "Remove schedule <b> of queue mail?")
		s.said(s.press(asks, "remove", "asked"), "Schedule <b> of queue mail is removed.")
		s.said(s.press(asks, "remove", "asked"), "There is no schedule <b>: nothing was changed.")
		list, err := cron.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Contains(t, s.log.String(), "schedule=nightly do=pause user=ada")
		kept, err := chanqadmin.Log(t.Context(), shop.DB, "mail", 10, chanq.Config{})
		require.NoError(t, err)
		var changes []string
		for _, c := range kept {
			changes = append(changes, c.What+" "+c.Which+" by "+c.Actor+": "+c.Reason)
			require.False(t, c.Ended.IsZero())
		}
		require.Equal(t, []string{"remove schedule <b> by ada: ", "resume schedule nightly by ada: ", "run schedule nightly by ada: ",
			"run schedule nightly by ada: ", "pause schedule nightly by ada: holidays"}, changes)

		eve := shop.open(chanqweb.Rights{User: "eve"})
		require.NotContains(t, eve.see("/schedules"), `method="post"`)
		list, err = cron.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, eve.press(reply{eve.get("/schedules").Response, page.text}, "remove", near, "sure", "yes").StatusCode)
		require.Equal(t, http.StatusForbidden, s.press(reply{page.Response, strings.ReplaceAll(page.text, `name="token"`, `name="other"`)}, "remove", near, "sure", "yes").StatusCode, "without its token")
		after, err := cron.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, list, after)
	})
}

// The answer to the message of a schedule is lost.
func TestAnUnknownOutcomeOfAScheduleIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		require.NoError(t, chanqcron.Migrate(t.Context(), shop.DB, chanq.Config{}))
		cron := chanqcron.New(shop.DB, shop.Mail)
		require.NoError(t, cron.Ensure(t.Context(), chanqcron.Schedule[[]byte]{Name: "nightly", Line: "30 2 * * *", Overlap: true, Message: chanq.Message[[]byte]{Body: []byte("x")}}))
		s := shop.open(everything, func(c *chanqweb.Config) { c.Timeout = time.Second })
		page := s.get("/schedules")
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if op.Kind != faultdb.Prepare && strings.Contains(op.Text, "INSERT INTO") {
				return faultdb.Fail(context.DeadlineExceeded).Applied()
			}
			return f
		})
		r := s.press(page, "run", "nightly")
		shop.Faults.Inject(nil)
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		require.Contains(t, r.text, "the outcome is unknown. Look at the schedule")
		require.Equal(t, 1, shop.Stats(shop.Mail).Ready)
	})
}

func TestABatchIsShownWithItsJobs(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		s := shop.open(chanqweb.Rights{})
		require.Contains(t, s.see("/"), `href="./batches"`)
		require.Contains(t, s.see("/batches"), "There is no batch.", "without the table")
		require.Equal(t, http.StatusNotFound, s.get("/batches/"+chanqjobs.NewBatch().String()).StatusCode)
		require.NoError(t, chanqjobs.Migrate(t.Context(), shop.DB, chanq.Config{}))
		jobs, err := chanqjobs.Open(t.Context(), shop.DB, "mail", chanq.Config{})
		require.NoError(t, err)
		piece, report := chanqjobs.Define[int]("piece"), chanqjobs.Define[string]("<report>")
		batch := chanqjobs.NewBatch()
		require.NoError(t, chanq.InTx(t.Context(), shop.DB, func(ctx context.Context, tx *sql.Tx) error {
			return chanqjobs.NewBatches(jobs).SendTx(ctx, tx, batch, report.New("all"), piece.New(1), piece.New(2), piece.New(3))
		}))
		l := testdb.Lease(t, jobs, 1, time.Minute)[0]
		require.NoError(t, l.Nack(chanq.DeadLetter(errors.New("no"))))

		list := s.see("/batches")
		require.Contains(t, list, `href="./batches/`+batch.String()+`"`)
		require.Contains(t, list, "&lt;report&gt;")
		page := s.see("/batches/" + batch.String())
		for fact, value := range map[string]string{"Sent": "3 jobs, ", "Left": "2<", "Done": "–"} {
			require.Contains(t, page, "<dt>"+fact+"</dt><dd>"+value)
		}
		require.Contains(t, page, `<dt>Dead</dt><dd class="bad">1<`)
		ids := regexp.MustCompile(`href="\.\./(q/mail/m/[0-9a-f-]{36})"`).FindAllStringSubmatch(page, -1)
		require.Len(t, ids, 3)
		require.Equal(t, "q/mail/m/"+l.ID.String(), ids[2][1], "the dead one")
		for _, id := range ids {
			require.Contains(t, s.see("/"+id[1]), `batches/`+batch.String()+`"`, "a job leads to its batch")
		}
		require.Equal(t, http.StatusNotFound, s.get("/batches/"+chanqjobs.NewBatch().String()).StatusCode)
	})
}

func TestTheProgressOfAJobIsShown(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		require.NoError(t, chanqjobs.Migrate(t.Context(), shop.DB, chanq.Config{}))
		id := shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})[0]
		s := shop.open(chanqweb.Rights{}, func(c *chanqweb.Config) {
			c.Redact = func(_ string, e *chanqadmin.Entry) { e.LastError = strings.ReplaceAll(e.LastError, "S3CRET", "***") }
		})
		require.NotContains(t, s.see("/q/mail/m/"+id.String()), "Progress")
		l := testdb.Lease(t, shop.Mail, 1, time.Minute)[0]
		require.NoError(t, chanqjobs.ReporterOf(shop.Mail, l.Lease).Report(t.Context(), 0.427, "page <3> of S3CRET"))
		page := s.see("/q/mail/m/" + id.String())
		require.Contains(t, page, "42 %")
		require.Contains(t, page, "page &lt;3&gt; of ***")
	})
}

// died are statements that store 20,000 dead messages of one cause.
var died = map[string]string{
	"sqlite": `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999)
		INSERT INTO chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fence, attempts, last_error, body)
		SELECT CAST(printf('%016d', i) AS BLOB), 0, 900000000000, 900000000000 + i, 2, 1, 1, 'disk full', x'00' FROM n`,
	"postgres": `INSERT INTO chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fence, attempts, last_error, body)
		SELECT lpad(to_hex(i), 32, '0')::uuid, 0, 900000000000, 900000000000 + i, 2, 1, 1, 'disk full', convert_to('x', 'UTF8') FROM generate_series(0, 19999) AS i`,
	"sqlserver": `WITH d AS (SELECT n FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16), (17), (18), (19)) AS v(n)),
		l AS (SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS i FROM d AS a CROSS JOIN d AS b CROSS JOIN d AS c CROSS JOIN d WHERE a.n < 10 AND b.n < 10 AND c.n < 10)
		INSERT INTO dbo.chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fence, attempts, last_error, body)
		SELECT CAST(CAST(i AS int) AS binary(16)), 0, '1999-01-01', DATEADD(millisecond, i, '1999-01-01'), 2, 1, 1, 'disk full', CAST('x' AS varbinary(max)) FROM l`,
}

// A purge of more messages than a request can wait for: the page shows how far it is, and can stop it.
func TestAChangeOfManyMessagesShowsItsProgressAndStops(t *testing.T) {
	onEach(t, func(t *testing.T, shop *shop) {
		names := shop.Mail.Names()
		dialect := map[chanq.Dialect]sqlbatch.Dialect{chanq.DialectSQLite: sqlite.Dialect, chanq.DialectPostgres: postgres.Dialect, chanq.DialectSQLServer: sqlserver.Dialect}[names.Dialect]
		_, err := shop.DB.ExecContext(t.Context(), died[string(names.Dialect)])
		require.NoError(t, err)
		s := shop.open(everything)
		asks := s.press(s.get("/q/mail/failures"), "purge", "")
		require.Contains(t, s.asked(asks), "Purge 10\u2009000 messages or more of queue mail?")
		walk := dialect.Queue(sqlbatch.Names{Queue: "mail"}).Walk(&sqlbatch.Group{}, 1000, sqlbatch.Window{})
		var steps atomic.Int64
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if testdb.Runs(op, walk) && steps.Add(1) > 2 {
				gate := make(chan struct{})
				time.AfterFunc(time.Second, func() { close(gate) })
				return faultdb.Hold(gate)
			}
			return f
		})
		page := s.press(asks, "purge", "asked")
		require.Equal(t, s.url+"/q/mail/failures", page.Request.URL.String(), "an address that can be loaded again")
		require.Eventually(t, func() bool {
			page = s.get("/q/mail/failures")
			return regexp.MustCompile("Purge by ada, for [^:]*: \\d\u2009000 messages so far.").MatchString(page.text)
		}, patience, tick)
		require.Equal(t, "2", page.Header.Get("Refresh"), "the browser asks again, without JavaScript")
		require.Equal(t, http.StatusConflict, s.press(asks, "purge", "asked").StatusCode)
		require.Eventually(t, func() bool { // on each page of the queue, unless the step holds the only connection for too long
			return strings.Contains(s.get("/q/mail/").text, "\u2009000 messages so far.")
		}, patience, tick)

		s.press(page, "stop", "")
		stopped := regexp.MustCompile("Purge by ada: stopped after (\\d)\u2009000 messages.")
		require.Eventually(t, func() bool {
			page = s.get("/q/mail/failures")
			return stopped.MatchString(page.text)
		}, patience, tick)
		require.NotEmpty(t, shop.Stats(shop.Mail).Dead)
		require.Empty(t, page.Header.Get("Refresh"))
		require.NotContains(t, page.text, `value="stop"`)
		require.Contains(t, s.log.String(), "a change is stopped")

		shop.Faults.Inject(nil)
		s.press(s.press(page, "purge", "back"), "purge", "asked")
		require.Eventually(t, func() bool { return shop.Stats(shop.Mail).Dead == 0 }, patience, tick)
	})
}

// A role that may not write the log of changes: the visitor learns it, of a change in the request and of one in the background.
func TestAChangeThatIsNotInTheLogSaysSo(t *testing.T) {
	const unlogged = "The change is not in the log of changes, which could not be written."
	onEach(t, func(t *testing.T, shop *shop) {
		names := shop.Mail.Names()
		s := shop.open(everything)
		r := s.press(s.press(s.get("/q/mail/"), "pause", ""), "pause", "asked", "reason", "x")
		require.NotContains(t, r.text, unlogged)
		require.Regexp(t, `(?s)ada.*pause`, s.see("/q/mail/changes"))
		for _, text := range []string{"DROP TABLE " + names.SQL("{chanq__log}"), died[string(names.Dialect)]} {
			_, err := shop.DB.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		s.said(s.press(s.get("/q/mail/"), "resume", ""), "The queue is resumed. "+unlogged)
		s.press(s.press(s.get("/q/mail/failures"), "purge", ""), "purge", "asked")
		require.Eventually(t, func() bool {
			return strings.Contains(s.see("/q/mail/failures"), "messages are purged. "+unlogged)
		}, patience, tick)
		require.Equal(t, 2, strings.Count(s.log.String(), "made, but not logged"))
	})
}

// The server ends while a change is running: it ends after its step. To its end it has changed all.
func TestAChangeOfManyMessagesEndsWithTheWebUI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		_, err := shop.DB.ExecContext(t.Context(), died["sqlite"])
		require.NoError(t, err)
		var page *chanqweb.Handler
		page, err = chanqweb.New(shop.DB, chanqweb.Config{Log: slog.New(slog.DiscardHandler), Rights: func(*http.Request) chanqweb.Rights { return everything }})
		require.NoError(t, err)
		s := shop.serve(page)
		asks := s.press(s.get("/q/mail/failures"), "redrive", "")
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "INSERT INTO") && !strings.Contains(op.Text, "chanq__log") {
				return faultdb.Hang()
			}
			return f
		})
		s.press(asks, "redrive", "asked")
		time.Sleep(time.Minute)
		page.Close()
		logged, err := chanqadmin.Log(t.Context(), shop.DB, "mail", 1, chanq.Config{})
		require.NoError(t, err)
		require.False(t, logged[0].Ended.IsZero(), "the log has its end before the process may end")
		require.Contains(t, logged[0].Error, "canceled")
		require.Equal(t, http.StatusConflict, s.press(asks, "redrive", "asked").StatusCode, "no other starts")
		shop.Faults.Inject(nil)
		require.Contains(t, s.see("/q/mail/failures"), "Redrive by ada: stopped after 0 messages.")
		require.Equal(t, chanqadmin.DryRunLimit, shop.Stats(shop.Mail).Dead)

		again := shop.open(everything)
		again.press(again.press(again.get("/q/mail/failures"), "redrive", ""), "redrive", "asked")
		require.Eventually(t, func() bool {
			return strings.Contains(again.see("/q/mail/failures"), "Redrive by ada: 20\u2009000 messages are ready again")
		}, patience, tick)
		time.Sleep(2 * time.Minute)
		require.NotContains(t, again.see("/q/mail/failures"), "Redrive by ada", "it is long past")
	})
}
