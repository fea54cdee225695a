package browsertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// shotsVariable names a folder for the screenshots of the browser tests.
const shotsVariable = "CHANQ_TEST_SCREENSHOTS"

// browser is a tab of a browser that records errors of its pages.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("NOT TESTED in a browser: chromium is not here (apt-get install chromium)")
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), chromedp.Headless, chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		require.NoError(t, chromedp.Cancel(ctx))
		cancel()
	})
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	_, err := chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})
	require.NoError(t, err)
	return b
}

// listen must return immediately: a page with a dialog is blocked, which the test detects.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdplog.EventEntryAdded: // also of the policy
		b.complaints = append(b.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, "a script failed: "+e.ExceptionDetails.Text)
	case *page.EventJavascriptDialogOpening:
		b.complaints = append(b.complaints, "a script asks: "+e.Message)
	}
}

// do runs actions in sequence, within a minute in all.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...), "complaints: %v", b.complaints)
}

// see opens a page and waits until all of it is loaded.
func (b *browser) see(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitVisible("footer"))
}

// loaded waits until the page that a key has led to is loaded, with its script.
func (b *browser) loaded() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](`document.readyState === "complete"`))
	require.NoError(b.t, err)
}

// evaluate returns the value of a JavaScript expression, which the debugging protocol may always run.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return v
}

// quiet requires that no page reported an error, except errors with all of these words.
func (b *browser) quiet(but ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		known := len(but) > 0
		for _, word := range but {
			known = known && strings.Contains(c, word)
		}
		require.True(b.t, known, c)
	}
}

// size sets the window size of a desktop or a phone, and the color scheme.
func (b *browser) size(width int64, scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1, Mobile: width < 500})
	require.NoError(b.t, err)
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(b.t, err)
}

// shoot returns a screenshot of a whole page, and saves it if a folder is set.
func (b *browser) shoot(name string) []byte {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	if folder := os.Getenv(shotsVariable); folder != "" {
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600))
	}
	return png
}

// look is a kind of window.
type look struct {
	name   string
	width  int64
	scheme string
}

// The pages at both widths, light and dark, with and without the permission to make changes. Each is
// readable, has its title, and does what the policy allows.
func TestPagesInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	shop.Fill()
	with := func(c *chanqweb.Config) { c.History = webshop.Waves{} }
	may, mayNot := open(shop, webshop.Everything, with), open(shop, chanqweb.Rights{}, with)
	b := newBrowser(t)
	dead, err := testdb.Peek(t.Context(), shop.Mail, chanqadmin.StateDead, 1)
	require.NoError(t, err)
	pages := []struct {
		name, path string
		says       []string
		acts       string // buttons with the permission to make changes
	}{
		{"overview", "/", []string{"Queues", "mail", "payments", "4 queues"}, ""},
		{"queue", "/q/mail/", []string{"Ready", "Messages per second", "Handler time", "Consumers", "mailer-1"}, "Pause"},
		{"messages", "/q/mail/messages?state=dead", []string{"Messages", dead[0].ID.String()}, "Redrive the chosen|Purge the chosen"},
		{"leased", "/q/mail/messages?state=leased", []string{"mailer-2"}, "Cancel the chosen"},
		{"message", "/q/mail/m/" + dead[0].ID.String(), []string{"Last error", "Life", "Facts", "Headers"}, "Redrive|Purge"},
		{"failures", "/q/mail/failures", []string{"Failures by cause", "60 dead messages", "is unknown"}, "Redrive"},
		{"consumers", "/q/mail/consumers", []string{"Consumers", "mailer-1"}, ""},
		{"slots", "/q/payments/slots", []string{"8 slots", "Keys that wait"}, ""},
		{"missing", "/q/nothing/", []string{"There is no such queue."}, ""},
	}
	for _, look := range []look{{"desk-light", 1280, "light"}, {"telephone-dark", 390, "dark"}, {"desk-dark", 1280, "dark"}, {"telephone-light", 390, "light"}} {
		b.size(look.width, look.scheme)
		for _, page := range pages {
			where := page.name + " at " + look.name
			b.see(may + page.path)
			b.reads(where, look.scheme == "dark", page.says...)
			b.shoot(look.name + "-" + page.name)
			acts := evaluate[string](b, `[...document.querySelectorAll("main form[method=post] button")].filter((e) => e.checkVisibility()).map((e) => e.innerText.trim()).join("|")`)
			require.True(t, strings.HasPrefix(acts, page.acts) && (page.acts != "" || acts == ""), "%s has the buttons %s", where, acts)
		}
	}
	for _, page := range pages {
		b.see(mayNot + page.path)
		b.reads(page.name+" without the permission to make changes", false, append(page.says, "read-only")...)
		require.Zero(t, evaluate[int](b, `document.querySelectorAll("form[method=post]").length`), page.name)
	}
	b.quiet("404", "/q/nothing/")
}

// An unavailable database, and the confirmation before a deletion.
func TestTroubleInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	ids := shop.Kill(shop.Mail, "x", nil, fmt.Errorf("no"))
	url := open(shop, webshop.Everything, func(c *chanqweb.Config) {
		c.History, c.Timeout = webshop.SamplesUntil(time.Now().Add(-17*time.Minute)), patience
	})
	b := newBrowser(t)
	for _, look := range []look{{"desk-light", 1280, "light"}, {"telephone-dark", 390, "dark"}} {
		dark := look.scheme == "dark"
		b.size(look.width, look.scheme)
		b.see(url + "/q/mail/m/" + ids[0].String())
		b.do(chromedp.Click(`main button[value=purge]`), chromedp.WaitReady(`input[name=sure]`))
		b.reads("the question at "+look.name, dark, "Purge one message of queue mail?", "No")
		b.shoot(look.name + "-ask")
		b.do(chromedp.Click(`.ask a.button`), chromedp.WaitNotPresent(`.ask`))
		require.Equal(t, 1, shop.Stats(shop.Mail).Dead, "No purges nothing")

		// A page that updates shows since when there is no response, and then updates again.
		b.see(url + "/q/mail/")
		shop.Faults.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Fail(fmt.Errorf("gone")) })
		b.do(chromedp.WaitVisible(`#live .trouble`))
		b.reads("a database that is away at "+look.name, dark, "No figures since")
		b.shoot(look.name + "-away")
		shop.Faults.Inject(nil)
		b.do(chromedp.WaitVisible(`#live .tiles`))
	}
	b.quiet("503") // while the database is away
}

func TestAnOperatorRedrivesAGroupInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	shop.Kill(shop.Mail, "x", nil, fmt.Errorf("user 1 is unknown"), fmt.Errorf("user 2 is unknown"), fmt.Errorf("disk full"))
	url := open(shop, webshop.Everything)
	b := newBrowser(t)
	b.size(1280, "light")
	b.see(url + "/q/mail/failures")
	b.do(chromedp.Click(`.causes li:first-child button[value=redrive]`), chromedp.WaitVisible(`.notice`))
	require.Contains(t, evaluate[string](b, `document.querySelector(".notice").textContent`), "2 messages are ready again")
	require.Equal(t, 2, shop.Stats(shop.Mail).Ready)
	require.Empty(t, evaluate[string](b, `location.search`), "loaded again, the page does not repeat the result")

	b.do(chromedp.Click(`.causes li:first-child button[value=purge]`), chromedp.WaitReady(`input[name=sure]`))
	require.Equal(t, 1, shop.Stats(shop.Mail).Dead)
	b.do(chromedp.Click(`.ask button.danger`), chromedp.WaitVisible(`.notice`))
	require.Zero(t, shop.Stats(shop.Mail).Dead)
	b.quiet()
}

func TestAPageUpdatesItsFiguresAndHandlesKeysInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	shop.Queue("reports", chanq.Config{})
	url := open(shop, chanqweb.Rights{})
	b := newBrowser(t)
	b.see(url + "/")
	b.do(chromedp.KeyEvent("jj"))
	require.Equal(t, "q-reports", evaluate[string](b, `document.activeElement.id`))
	shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})
	_, err := chromedp.Run(b.ctx, chromedp.Poll[bool](`document.querySelector("#live td").textContent === "1"`))
	require.NoError(t, err)
	require.Equal(t, "q-reports", evaluate[string](b, `document.activeElement.id`), "the focus does not move")
	b.do(chromedp.KeyEvent("k\r"), chromedp.WaitVisible(`.tabs`))
	b.loaded()
	require.Equal(t, "/ops/queues/q/mail/", evaluate[string](b, `location.pathname`))
	b.do(chromedp.KeyEvent("u"), chromedp.WaitVisible(`.queues`))
	b.loaded()

	b.do(chromedp.KeyEvent("?"), chromedp.WaitVisible(`#help`))
	b.reads("the help", false, "next page", "find messages")
	b.do(chromedp.KeyEvent("?"), chromedp.WaitNotVisible(`#help`))
	b.do(chromedp.KeyEvent("/"))
	require.Equal(t, "find", evaluate[string](b, `document.activeElement.id`))
	require.Empty(t, evaluate[string](b, `(document.activeElement.value = "")`), "the tool also types text that a page has refused")
	b.do(chromedp.KeyEvent("mail\r"), chromedp.WaitVisible(`.tabs`))
	b.loaded()
	require.Equal(t, "/ops/queues/q/mail/", evaluate[string](b, `location.pathname`))
	var many []chanq.Message[[]byte]
	for range 60 {
		many = append(many, chanq.Message[[]byte]{Body: []byte("x")})
	}
	shop.Send(shop.Mail, many...)
	b.do(chromedp.KeyEvent("/"), chromedp.WaitVisible(`.messages`)) // a page without the field leads to the page that has it
	b.loaded()
	require.Equal(t, "find", evaluate[string](b, `document.activeElement.id`))
	require.True(t, evaluate[bool](b, `document.activeElement.blur() === undefined`))
	b.do(chromedp.KeyEvent("n"), chromedp.WaitVisible(`.pages a:first-child:not(#next)`))
	require.Contains(t, evaluate[string](b, `location.search`), "from=")
	b.quiet()
}

// The age of the figures has its place, counts on between events, and says why there are no newer ones; the button for a pause changes with
// the queue.
func TestThePlaceOfTheAgeInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	url := open(shop, webshop.Everything, func(c *chanqweb.Config) { c.MaxLive = 1 })
	b := newBrowser(t)
	until := func(condition string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](condition))
		require.NoError(t, err, condition)
	}
	b.see(url + "/q/mail/")
	until(`/^[0-5] s ago$/.test(document.getElementById("age").textContent) && document.getElementById("age").dataset.state === "fresh"`)
	require.True(t, evaluate[bool](b, `document.getElementById("if-paused").hidden`))
	require.NoError(t, testdb.Pause(t.Context(), shop.Mail))
	until(`!document.getElementById("if-paused").hidden && document.getElementById("if-running").hidden`)

	// Another viewer takes the only place.
	b.do(chromedp.Navigate("about:blank"))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var body io.ReadCloser
	require.Eventually(t, func() bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/live", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body = response.Body
		first := make([]byte, 11)
		_, err = io.ReadFull(body, first)
		require.NoError(t, err)
		if string(first) == "retry: 3000" {
			return true
		}
		require.NoError(t, body.Close())
		return false
	}, patience, tick)
	defer body.Close()
	b.see(url + "/q/mail/")
	until(`document.getElementById("age").textContent.endsWith("Not live: 1 others watch; reloads every 10 s")`)
	require.Equal(t, "poll", evaluate[string](b, `document.getElementById("age").dataset.state`))
	b.reads("a page above the limit", false, "reloads every 10 s")
	leave()
	until(`document.getElementById("age").dataset.state === "fresh"`)
	b.quiet()
}

// Scripts that a careless page would run are run by no page.
func TestHostileTextsRunNothingInABrowser(t *testing.T) {
	shop := webshop.New(t, testdb.SQLite)
	var causes []error
	for _, evil := range webshop.Evils {
		causes = append(causes, fmt.Errorf("%s", evil))
	}
	ids := shop.Kill(shop.Mail, strings.Join(webshop.Evils, "\n"), map[string]string{"h": webshop.Evils[1]}, causes...)
	shop.Send(shop.Mail, chanq.Message[[]byte]{Body: []byte("x")})
	shop.Consume(shop.Mail, webshop.Evils[1], 1)
	url := open(shop, chanqweb.Rights{User: webshop.Evils[1], Change: true, Bodies: true}, func(c *chanqweb.Config) { c.Title = webshop.Evils[0] })
	b := newBrowser(t)
	for _, path := range []string{"/", "/q/mail/", "/q/mail/messages?state=dead", "/q/mail/failures", "/q/mail/consumers", "/q/mail/m/" + ids[0].String()} {
		b.see(url + path)
		require.Zero(t, evaluate[int](b, `document.querySelectorAll("main img, main script, main [onload], main [onerror], main [onfocus]").length`), path)
	}
	b.quiet()
}
