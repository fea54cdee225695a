package browsertest

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/trouble"
)

// causes has for a fault what the overview says, and what the page says to which its link leads.
var causes = map[string]struct{ says, then string }{
	"messages of one type die":        {`\d messages? (is|are) dead, the last for .+: parse invoice: unknown currency "XBT"`, `parse invoice`},
	"all attempts fail":               {`all of the last \d+ attempts failed`, ``},
	"handlers hang, with a backlog":   {`all \d messages in hand have been leased for .+, by web-6`, `web-6`},
	"handlers hang, nothing is ready": {`all \d messages in hand have been leased for .+, by web-6`, `web-6`},
	"one of eight hangs":              {`(1 of \d+ messages|the only message) in hand has been leased for .+, by web-6`, `web-6`},
	"the consumer is killed":          {`consumer web-6 is not heard, with 3 messages in hand, the last taken .+ ago; no other runs`, `web-6`},
	"the file is locked":              {`the file is locked for writing by|another connection has the write lock of the file`, ``},
	"no consumer runs":                {`no consumer runs; 12 messages wait, the oldest for`, `the ready messages wait`},
	"the queue is paused":             {`paused for .+ by ada: deploying 4.2`, `by ada: deploying 4.2`},
	"a dead message blocks its key":   {`8 ready messages of 1 key wait for dead messages of the same key`, `customer 7`},
	"the database does not answer":    {`the database does not answer`, ``},
}

// TestAnOperatorReadsEachTroubleInABrowser causes each fault that SQLite can have, and reads the overview on a desk and on a telephone. It then
// follows the link, and after the repair it sees that nothing is left.
func TestAnOperatorReadsEachTroubleInABrowser(t *testing.T) {
	b := newBrowser(t)
	for _, fault := range trouble.Faults {
		want, can := causes[fault.Name]
		if !can {
			require.Equal(t, "a table is locked", fault.Name)
			continue
		}
		t.Run(fault.Name, func(t *testing.T) {
			b := &browser{t: t, ctx: b.ctx}
			w := trouble.NewWard(testdb.New(t, testdb.SQLite), chanq.Hooks{})
			w.Healthy()
			url := open(&webshop.Shop{T: t, DB: w.DB}, webshop.Everything, func(c *chanqweb.Config) { c.Limits = chanqfindings.Limits{Stuck: 3 * time.Second} })
			b.size(1280, "light")
			b.see(url + "/")
			require.Contains(t, b.text(), "no trouble")
			end := fault.Cause(w)
			says := regexp.MustCompile(want.says)
			require.Eventually(t, func() bool { b.see(url + "/"); return says.MatchString(b.text()) }, patience, time.Second, "%s", want.says)
			b.shoot("trouble-" + string(fault.Finds[0]))
			b.size(390, "dark")
			b.see(url + "/")
			b.reads(fault.Name, true, "Needs you")
			b.size(1280, "light")
			if want.then != "" {
				b.see(url + "/")
				b.do(chromedp.Click(`.needs li:first-child > a:last-child`), chromedp.WaitVisible(`.tabs`))
				b.loaded()
				require.Regexp(t, want.then, b.text())
			}
			end()
			b.see(url + "/")
			_, err := chromedp.Run(b.ctx, chromedp.Poll[bool](`document.body.innerText.includes("no trouble")`, chromedp.WithPollingTimeout(patience)))
			require.NoError(t, err)
			b.do(chromedp.Navigate("about:blank"))
		})
	}
	b.quiet("503")
}

// The page that the database did not answer keeps the tabs and the last figures, and counts down until it asks again.
func TestAnErrorPageAsksAgainInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	shop.Kill(shop.Mail, "x", nil, errors.New("no"))
	url := open(shop, webshop.Everything)
	b := newBrowser(t)
	b.size(390, "dark")
	b.see(url + "/q/mail/")
	b.do(chromedp.WaitVisible(`.tiles`))
	shop.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Fail(errors.New("gone")) })
	b.see(url + "/q/mail/messages")
	b.reads("an error page", true, "Messages", "0 ready · 0 scheduled · 0 leased · 1 dead", "Try again")
	require.Regexp(t, `^in [1-5] s$`, evaluate[string](b, `document.getElementById("again").nextElementSibling.textContent`))
	b.shoot("error")
	shop.Faults.Inject(nil)
	b.do(chromedp.WaitVisible(`.states`)) // it has asked again
	b.quiet("503")
}

// text returns what can be read.
func (b *browser) text() string {
	b.t.Helper()
	return evaluate[string](b, `document.body.innerText`)
}
