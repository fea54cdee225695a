package browsertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
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
	"github.com/chanq/chanq/prove/trouble"
)

// opening is when the hour of a scene begins.
var opening = time.Date(2026, time.May, 12, 9, 0, 0, 0, time.UTC)

// scene has pages of the web UI after an hour of a shop that has five troubles, as they were served in a bubble, with the same times
// in each run.
type scene struct {
	pages map[string]*httptest.ResponseRecorder // by path, with the query
	shown []string                              // the paths of pages, without assets and streams
	// pictures are the paths of the pages of which the documents have a picture, by its name.
	pictures map[string]string
}

// newScene lets the shop run for its hour.
func newScene(t *testing.T) *scene {
	s := &scene{pages: map[string]*httptest.ResponseRecorder{}}
	testdb.InBubble(t, true, func(t *testing.T) {
		time.Sleep(time.Until(opening))
		w := &shop{trouble.NewWard(testdb.New(t, testdb.Memory), chanq.Hooks{})}
		w.Within(2 * time.Hour)
		paths, pictures := w.hour()
		s.pictures = pictures
		page, err := chanqweb.New(w.DB, chanqweb.Config{
			Title: "shop", Log: slog.New(slog.DiscardHandler), Rights: func(*http.Request) chanqweb.Rights { return webshop.Everything },
		})
		require.NoError(t, err)
		defer page.Close()
		get := func(path string) *httptest.ResponseRecorder {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a stream ends after its first event
			defer cancel()
			r := httptest.NewRecorder()
			page.ServeHTTP(r, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			require.Equal(t, http.StatusOK, r.Code, "%s: %s", path, r.Body)
			s.pages[path] = r
			return r
		}
		for _, path := range paths {
			get(path)
		}
		time.Sleep(2 * time.Second) // the readers have read
		s.shown = paths
		for _, path := range paths {
			text := get(path).Body.String()
			for _, name := range []string{"style.css", "page.js", "icon.svg"} {
				_, version, _ := strings.Cut(text, "assets/"+name+"?v=")
				version, _, _ = strings.Cut(version, `"`)
				get("/assets/" + name + "?v=" + version)
			}
			if _, live, is := strings.Cut(text, `data-live="`); is {
				live, _, _ = strings.Cut(live, `"`)
				get("/" + strings.TrimLeft(live, "./"))
			}
		}
	})
	return s
}

// ServeHTTP serves the pages of the scene. A stream repeats its first event, so its figures do not become old.
func (s *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page := s.pages[r.URL.RequestURI()]
	if page == nil {
		http.NotFound(w, r)
		return
	}
	for name, values := range page.Header() {
		w.Header()[name] = values
	}
	for {
		_, _ = w.Write(page.Body.Bytes()) // an error means that the browser has disconnected
		if page.Header().Get("Content-Type") != "text/event-stream" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// shop is a database with the queues of a shop.
type shop struct{ *trouble.Ward }

// until waits for a minute of the hour.
func until(minute float64) {
	time.Sleep(time.Until(opening.Add(time.Duration(minute * float64(time.Minute)))))
}

// again calls fn after each pause until the test ends.
func (w *shop) again(pause time.Duration, fn func(n int)) {
	end, ended := make(chan struct{}), make(chan struct{})
	w.Cleanup(func() { close(end); <-ended })
	go func() { // until end is closed
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			case <-time.After(pause * time.Duration(3+n/150%4) / 4): // busy and quiet times
				fn(n)
			}
		}
	}()
}

// queue creates a queue, to which messages of some types are sent in turn.
func (w *shop) queue(name string, cfg chanq.Config, every time.Duration, types ...string) *chanq.Queue[string] {
	q := w.Queue(name, cfg)
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	w.again(every, func(n int) {
		m := chanq.Message[string]{
			Type: types[n%len(types)], Body: fmt.Sprintf(`{"customer":%d,"order":"A-%d","lines":[{"sku":"tea-%d","pieces":2}],"total":{"amount":"%d.90","currency":"EUR"}}`, 4000+n%700, 10_000+n, n%40, 12+n%90),
			Headers: map[string]string{"tenant": "north", "trace": fmt.Sprintf("00-%032x-%016x-01", n*7919+1, n*104729+1)},
		}
		if cfg.Kind == chanq.KindOrdered {
			m.Key = fmt.Sprintf("account %d", n%60)
		}
		_, _ = p.Send(context.Background(), m) // an error means that the test ends
	})
	return q
}

// takes returns a handler that takes some time, and then returns the error of fn.
func takes(d time.Duration, fn func(*chanq.Lease[string]) error) func(context.Context, *chanq.Lease[string]) error {
	return func(_ context.Context, l *chanq.Lease[string]) error {
		time.Sleep(d)
		if fn == nil {
			return nil
		}
		return fn(l)
	}
}

func consumer(name string) chanq.ConsumerConfig {
	return chanq.ConsumerConfig{Name: name, Prefetch: 8, PollEvery: 5 * time.Second}
}

// hour lets the shop run for an hour. It returns the paths of the pages, and by name the paths of the pages that the documents show.
func (w *shop) hour() (paths []string, pictures map[string]string) {
	ctx := context.Background()
	by := func(actor, reason string) chanqadmin.Change { return chanqadmin.Change{Actor: actor, Reason: reason} }

	// Healthy queues.
	w.Handle(w.queue("orders", chanq.Config{}, 900*time.Millisecond, "placed", "paid", "shipped"), consumer("orders-1"), 4, takes(120*time.Millisecond, nil))
	w.Handle(w.queue("webhooks", chanq.Config{}, 1700*time.Millisecond, "order.paid"), consumer("hooks-1"), 4, takes(300*time.Millisecond, nil))
	ledger := w.queue("ledger", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 8}}, 2*time.Second, "debit", "credit")
	w.Handle(ledger, consumer("ledger-1"), 4, takes(800*time.Millisecond, func(l *chanq.Lease[string]) error {
		if l.Attempt == 1 && l.Key == "account 12" {
			return errors.New("serialization failure, SQLSTATE 40001")
		}
		return nil
	}))

	// Some emails die: at first those whose retries are used up, later those without a mailbox.
	emails := w.queue("emails", chanq.Config{Spec: chanq.Spec{MaxAttempts: 4}}, 2*time.Second, "receipt", "welcome", "reminder")
	mailer := consumer("mailer-1")
	mailer.Backoff = func(d *chanq.Delivery, _ error) time.Duration { return time.Duration(d.Attempt) * 40 * time.Second }
	w.Handle(emails, mailer, 4, takes(1100*time.Millisecond, func(l *chanq.Lease[string]) error {
		var customer, order int
		_, err := fmt.Sscanf(l.Body, `{"customer":%d,"order":"A-%d"`, &customer, &order)
		require.NoError(w, err)
		switch {
		case order%67 == 0:
			return fmt.Errorf("451 4.3.0 mailbox of customer %d is busy", customer)
		case l.Type == "welcome" && order%71 == 0:
			return chanq.DeadLetter(fmt.Errorf(`template "welcome": field "name" of customer %d is missing`, customer))
		case order%53 == 0:
			return chanq.DeadLetter(fmt.Errorf("550 5.1.1 customer %d has no such mailbox", customer))
		}
		return nil
	}))

	// A batch that has ended and one that runs, whose jobs report their progress, and schedules.
	require.NoError(w, chanqjobs.Migrate(ctx, w.DB, chanq.Config{}))
	require.NoError(w, chanq.Migrate(ctx, w.DB, "imports", chanq.Config{}))
	imports, err := chanqjobs.Open(ctx, w.DB, "imports", chanq.Config{})
	require.NoError(w, err)
	file, report := chanqjobs.Define[string]("import file"), chanqjobs.Define[string]("report of import")
	batches := chanqjobs.NewBatches(imports)
	send := func(month string, files int) chanq.ID {
		batch := chanqjobs.NewBatch()
		var list []chanq.Message[chanqjobs.Job]
		for i := range files {
			list = append(list, file.New(fmt.Sprintf("products-%s-%02d.csv", month, i+1)))
		}
		require.NoError(w, chanq.InTx(ctx, w.DB, func(ctx context.Context, tx *sql.Tx) error {
			return batches.SendTx(ctx, tx, batch, report.New(month), list...)
		}))
		return batch
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // until the test ends
		defer close(ended)
		_ = batches.Run(running)
	}()
	c, err := imports.Consume(ctx, chanq.ConsumerConfig{Name: "importer-1", Prefetch: 1, PollEvery: 5 * time.Second})
	require.NoError(w, err)
	done := make(chan struct{})
	go func() { // ends with the consumer
		defer close(done)
		_ = c.Handle(2, func(ctx context.Context, l *chanq.Lease[chanqjobs.Job]) error {
			if l.Type == "import file" {
				progress := chanqjobs.ReporterOf(imports, l)
				for row := range 25 {
					if err := progress.Report(ctx, float64(row)/25, fmt.Sprintf("row %d of 12,500", row*500)); err != nil {
						return err
					}
					time.Sleep(2 * time.Second)
				}
			}
			return nil
		})
	}()
	w.Cleanup(func() {
		stop()
		<-ended
		c.Stop()
		_ = c.Shutdown(testdb.Soon(w))
		<-done
	})
	require.NoError(w, chanqcron.Migrate(ctx, w.DB, chanq.Config{}))
	cron := chanqcron.New(w.DB, emails)
	for _, s := range []chanqcron.Schedule[string]{
		{Name: "reminders of open invoices", Line: "0 8 * * mon-fri", Zone: "Europe/Berlin", Message: chanq.Message[string]{Type: "reminder", Body: "{}"}},
		{Name: "stock report", Line: "*/15 * * * *", Message: chanq.Message[string]{Type: "receipt", Body: `{"customer":1,"order":"A-1"}`}},
		{Name: "newsletter", Line: "30 17 * * thu", Zone: "Europe/Berlin", Message: chanq.Message[string]{Type: "reminder", Body: "{}"}},
	} {
		require.NoError(w, cron.Ensure(ctx, s))
	}
	require.NoError(w, cron.Pause(ctx, "newsletter", "ada", "until the new template is approved"))

	ticked := make(chan struct{})
	go func() { // until the test ends
		defer close(ticked)
		_ = cron.Run(running)
	}()
	w.Cleanup(func() { stop(); <-ticked })

	// The troubles.
	thumbnails := w.queue("thumbnails", chanq.Config{}, 700*time.Millisecond, "resize")
	gate, hangs := make(chan struct{}), false
	w.Handle(thumbnails, consumer("web-6"), 8, takes(2*time.Second, func(*chanq.Lease[string]) error {
		if hangs {
			hangs = false
			<-gate
		}
		return nil
	}))
	w.Cleanup(func() { close(gate) })
	invoices := w.queue("invoices", chanq.Config{}, 1500*time.Millisecond, "print", "send")
	printer, err := invoices.Consume(ctx, consumer("printer-1"))
	require.NoError(w, err)
	printed := make(chan struct{})
	go func() { // until 09:46
		defer close(printed)
		_ = printer.Handle(4, takes(400*time.Millisecond, nil))
	}()
	away := false
	payments := w.queue("payments", chanq.Config{Spec: chanq.Spec{MaxAttempts: 20}}, time.Second, "charge", "charge", "refund")
	w.Handle(payments, consumer("payments-2"), 8, takes(600*time.Millisecond, func(*chanq.Lease[string]) error {
		if away {
			return errors.New("POST https://pay.example/charge: 503 Service Unavailable")
		}
		return nil
	}))
	newsletter := w.queue("newsletter", chanq.Config{}, 20*time.Second, "spring")
	w.Handle(newsletter, consumer("letters-1"), 2, takes(time.Second, nil))

	send("april", 6)
	until(29)
	_, err = testdb.Admin(emails).Redrive(ctx, chanqadmin.Select{All: true}, by("grace", "mail server has a larger queue now"))
	require.NoError(w, err)
	until(41)
	hangs = true
	until(46)
	require.NoError(w, printer.Shutdown(testdb.Soon(w)))
	<-printed
	until(49)
	require.NoError(w, testdb.Admin(newsletter).Pause(ctx, by("ada", "deploying 4.2")))
	until(54)
	away = true
	until(57)
	batch := send("may", 8)
	until(60)

	list := func(q *chanqadmin.Queue, state chanqadmin.State) []chanqadmin.Entry {
		page, err := q.List(ctx, chanqadmin.Select{State: state}, chanqadmin.List{Limit: 500})
		require.NoError(w, err)
		require.NotEmpty(w, page.Entries, "%s %s", q.Name(), state)
		return page.Entries
	}
	admin, err := chanqadmin.Open(ctx, w.DB, "imports", chanq.Config{})
	require.NoError(w, err)
	importing := list(admin, chanqadmin.StateLeased)[0]
	var retried chanqadmin.Entry
	for _, e := range list(testdb.Admin(emails), chanqadmin.StateDead) {
		if e.Attempts > retried.Attempts {
			retried = e
		}
	}
	require.Len(w, retried.History, 4)
	attempts := "/q/emails/m/" + retried.ID.String()
	paths = []string{
		"/", "/schedules", "/batches", "/batches/" + batch.String(), "/changes", "/q/emails/", "/q/payments/", "/q/invoices/", "/q/thumbnails/", "/q/newsletter/", "/q/ledger/",
		"/q/emails/failures", "/q/payments/failures", attempts, "/q/imports/m/" + importing.ID.String(),
		"/q/emails/messages?state=dead", "/q/payments/messages?state=scheduled", "/q/thumbnails/messages?state=leased", "/q/orders/messages?state=ready", "/q/thumbnails/consumers", "/q/ledger/slots", "/q/emails/changes",
	}
	return paths, map[string]string{
		"overview": "/", "telephone": "/", "queue": "/q/emails/", "failures": "/q/emails/failures", "message": attempts,
		"trouble-nobody": "/q/invoices/", "trouble-stuck": "/q/thumbnails/messages?state=leased",
	}
}
