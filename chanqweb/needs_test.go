package chanqweb_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/trouble"
)

func TestTheOverviewBeginsWithWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t)
		page := s.open(everything, func(c *chanqweb.Config) {
			c.Redact = func(_ string, e *chanqadmin.Entry) {
				if e.LastError == "<b>number 4111</b>" {
					e.LastError = "<b>a number</b>"
				}
			}
		})
		require.Contains(t, page.get("/").text, "1 queue, no trouble")
		s.Kill(s.Mail, "x", nil, errors.New("<b>number 4111</b>"))
		s.Send(s.Mail, chanq.Message[[]byte]{Body: []byte("x")})
		require.NoError(t, testdb.Pause(t.Context(), s.Queue("reports", chanq.Config{})))
		for i := range 5 {
			s.Send(s.Queue(fmt.Sprintf("empty_%d", i), chanq.Config{}), chanq.Message[[]byte]{Body: []byte("x")})
		}
		time.Sleep(2 * time.Minute) // longer than figures are kept, and the consumer of Kill is listed
		text := page.get("/").text
		require.NotContains(t, text, "4111")
		require.Regexp(t, `(?s)<li class="failure">.*?<a class="plain" href="./q/empty_0/">empty_0</a>.*?no consumer runs; 1 message waits, the oldest for 2 min.*?<small>start a consumer;`, text)
		require.Contains(t, text, ">2 more<")
		for i := range 5 {
			require.NoError(t, chanqadmin.DropWithMessages(t.Context(), s.DB, fmt.Sprintf("empty_%d", i), chanq.Config{}, chanqadmin.Change{}))
		}
		time.Sleep(time.Minute)
		text = page.get("/").text
		require.Regexp(t, `(?s)<li class="warning">.*?1 message is dead, the last for 3 min: &lt;b&gt;a number&lt;/b&gt;.*?<a href="./q/mail/failures">See failures ›</a>`, text)
		require.Regexp(t, `(?s)<li class="notice">.*?paused for`, text)
	})
}

var rowNames = regexp.MustCompile(`id="q-([a-z0-9_]+)"`)

// rows returns the queues of a page of the overview.
func rows(page string) (names []string) {
	for _, found := range rowNames.FindAllStringSubmatch(page, -1) {
		names = append(names, found[1])
	}
	return names
}

// The last two queues by name are in trouble, and more than a page of others are not.
func TestTheOverviewNamesTheFindingsOfAllQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t)
		for i := range 119 {
			s.Queue(fmt.Sprintf("queue%03d", i), chanq.Config{})
		}
		require.NoError(t, testdb.Pause(t.Context(), s.Queue("zebra", chanq.Config{})))
		s.Send(s.Queue("zoo", chanq.Config{}), chanq.Message[[]byte]{Body: []byte("x")})
		page := s.open(everything)
		require.NotContains(t, rows(page.see("/")), "zoo")
		for range 3 {
			time.Sleep(2 * time.Second)
			page.see("/")
		}
		for after, first := range map[string]string{"": "zoo", "queue090": "queue091"} {
			text := page.see("/?after=" + after)
			require.Regexp(t, `(?s)<li class="failure">.*?href="./q/zoo/">zoo</a>.*?no consumer runs.*?<li class="notice">.*?href="./q/zebra/">zebra</a>.*?paused for`, text)
			require.Equal(t, first, rows(text)[0])
		}
		first := rows(page.see("/"))
		require.Equal(t, []string{"zoo", "zebra", "mail", "queue000"}, first[:4], "the worst first, then by name")
		require.Len(t, first, 100)
		last := rows(page.see("/?after=" + first[99]))
		require.Equal(t, []string{"queue097", "queue118"}, []string{last[0], last[len(last)-1]})
		require.NoError(t, testdb.Admin(s.Queue("queue118", chanq.Config{})).Pause(t.Context(), chanqadmin.Change{Actor: "ada"}))
		time.Sleep(5 * time.Second)
		require.Equal(t, "queue118", rows(page.see("/?after=queue100"))[0], "which this page has found in trouble")
	})
}

func TestThePageOfAQueueBeginsWithItsFindings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t)
		page := s.open(everything)
		require.Contains(t, page.see("/q/mail/"), `<p class="soft">No trouble</p>`)
		s.Kill(s.Mail, "x", nil, errors.New("no"))
		require.NoError(t, testdb.Admin(s.Mail).Pause(t.Context(), chanqadmin.Change{Actor: "ada", Reason: "the printer burns"}))
		require.NoError(t, testdb.Pause(t.Context(), s.Queue("other", chanq.Config{})))
		time.Sleep(5 * time.Second)
		page.see("/")
		text := page.see("/q/mail/")
		require.Regexp(t, `(?s)<span>dead</span>.*?1 message is dead.*?: no <small>.*?<a href="../../q/mail/failures">See failures ›</a>.*?<span>paused</span>.*?by ada: the printer burns <small>[^<]*Resume in the web UI, or chanq resume mail</small></span>\s*</li>.*?<dl class="tiles">`, text)
		require.Equal(t, 2, strings.Count(text, `<span class="found">`), "its own")
		next, end := page.follow("/q/mail/live")
		defer end()
		require.Contains(t, next(), "by ada: the printer burns")
	})
}

// A panic of Redact does not make a queue look healthy.
func TestAQueueWhoseFindingsCannotBeShownIsInTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShop(t)
		s.Kill(s.Mail, "x", nil, errors.New("no"))
		page := s.open(everything, func(c *chanqweb.Config) {
			c.Redact = func(string, *chanqadmin.Entry) { panic("not yet written") }
		})
		require.Contains(t, page.see("/"), "the database refuses to show the figures")
		require.Contains(t, page.log.String(), "not yet written")
	})
}

func TestLimitsThatAreNotValidAreRefused(t *testing.T) {
	_, err := chanqweb.New(nil, chanqweb.Config{Limits: chanqfindings.Limits{Late: -1}})
	require.ErrorContains(t, err, "chanqweb: Config.Limits.Late is -1ns: must be 0 (any time) or more")
}

// Another program has the write lock of a SQLite file with more queues than there are places. Each probe of the lock lasts 1 s.
func TestALockedFileOfManyQueuesIsOneFinding(t *testing.T) {
	for _, e := range []testdb.Engine{testdb.SQLiteFile} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			testdb.InBubble(t, e.Bubble, func(t *testing.T) {
				w := testdb.New(t, e)
				w.Open()
				s := &shop{&webshop.Shop{T: t, DB: w.DB, Faults: w.Faults}}
				for i := range 12 {
					s.Queue(fmt.Sprintf("queue%d", i), chanq.Config{})
				}
				site := s.open(everything)
				site.see("/")
				time.Sleep(5 * time.Second)
				require.Contains(t, site.see("/"), "12 queues, no trouble")
				_, other := w.Connect()
				tx, err := other.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(t.Context(), "UPDATE chanq__queues SET paused = paused")
				require.NoError(t, err)
				seen := 0
				for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(500 * time.Millisecond) {
					page := site.see("/")
					if n := strings.Count(page, `<li class="failure">`); n > 0 || seen > 0 {
						require.Equal(t, 1, n, page)
						require.Equal(t, 1, strings.Count(page, "write lock of the file")+strings.Count(page, "locked for writing"), page)
						seen++
					}
					require.NotContains(t, page, "does not answer")
				}
				require.Greater(t, seen, 10)
				require.NoError(t, tx.Rollback())
				require.Eventually(t, func() bool { return strings.Contains(site.see("/"), "12 queues, no trouble") }, 20*time.Second, time.Second)
			})
		})
	}
}

// Only one look after the other knows since when a message of an ordered queue is leased.
func TestAMessageOfAnOrderedQueueThatHangsIsShown(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		ward := trouble.NewWard(w, chanq.Hooks{})
		end := trouble.OneStuck(ward, chanq.KindOrdered)
		s := &shop{&webshop.Shop{T: w.T, DB: w.DB, Faults: w.Faults}}
		site := s.open(everything)
		began := time.Now()
		for ; !strings.Contains(site.see("/"), "1 message has been leased for "); time.Sleep(2 * time.Second) {
			require.Less(w, time.Since(began), 2*time.Minute)
		}
		require.Greater(w, time.Since(began), time.Minute)
		end()
	})
}
