// Package chanqweb is a web UI in which operators inspect queues and, if permitted, change their messages:
//
//	page, err := chanqweb.New(db, chanqweb.Config{Title: "shop"})
//	mux.Handle("/queues/", http.StripPrefix("/queues", page))
//
// Its links are relative, so it works under any prefix that is stripped from the path, for example by a proxy. It loads nothing from
// other sites, and needs JavaScript only for pages that update automatically.
//
// The package does not know your users. Wrap the handler in your own authentication, in WithLogin, or in LocalOnly: otherwise everyone
// who reaches the server sees the queues. Config.Rights determines what a user may do. By default users may view everything except bodies
// and values of headers. Every request that changes something requires a token that other sites cannot know, and is logged.
//
// The database work of a page does not grow with the depth of the queues: counts have a limit of 10,000, lists begin at a cursor, and
// all visitors share the figures of a queue, which are read every 2 s while a page is open, on up to 8 connections. A queue whose tables are locked delays no page
// of another queue: the overview shows its last figures, with their age.
package chanqweb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// Config configures a Handler. With the zero value it shows all queues of the database, changes nothing and hides bodies.
type Config struct {
	Dialect chanq.Dialect // as in chanq.Config
	Schema  string        // as in chanq.Config

	// Title is the name of the database on each page. Default: "chanq".
	Title string

	// Rights returns what the sender of a request may do. It is called once per request, concurrently. Default: the zero Rights.
	Rights func(*http.Request) Rights

	// Redact changes a message before the UI shows any of it, to every user: its error, keys, headers and body. In lists the message has
	// neither headers nor body. On the page of slots it has only Key and Slot. For a group of failures, and for each error of History, it
	// has only the ID, the state, the cause, EndedAt and LastError; for a job's progress LastError is the note. If what you hide depends
	// on other fields, hide LastError. Nothing else hides the errors of handlers (see Rights.Bodies). Redact is called concurrently, and
	// owns the message. It gets the whole body or none: pages do not show one above 64 KiB then. Default: none.
	Redact func(queue string, e *chanqadmin.Entry)

	// Limits are when a queue is in trouble.
	Limits chanqfindings.Limits

	// Log receives a record of each change, including rejected ones, and the errors of the database, for which a page shows only a
	// sentence. Default: slog.Default().
	Log *slog.Logger

	// History returns the samples of the charts. Default: chanqadmin.Queue.History.
	History History

	// Secret is the key of the tokens in forms. All processes that serve the UI at one address need the same one. Default: random, for
	// one process. Range: 32 bytes or more.
	Secret []byte

	// Timeout bounds a request, whatever the database and its driver do. A change that is not confirmed until then ends, and the page says
	// how far it came. A change of 10,000 messages or more goes on in the background, until its end or Close. Default: 10 s.
	Timeout time.Duration

	// MaxLive is how many open pages may update every 2 s. Further pages update every 10 s, and say so. Default: 256.
	MaxLive int
}

// Rights are what a user may do. With the zero value the user may only view.
type Rights struct {
	User   string // the name of the user, for the log
	Change bool   // redrive, purge, cancel and run messages, pause and resume queues, change schedules
	Bodies bool   // see bodies, values of headers, and the text of a codec's error
}

// Handler serves the web UI. It is safe for concurrent use. It has a goroutine for each read of figures, which ends after 2 s, and for
// each request that uses the database, which ends with it; both outlast their time only if the driver ignores the end of a context. Each
// change of many messages has a goroutine until its end.
type Handler struct {
	cfg     Config
	redacts bool            // Config.Redact is set
	life    context.Context // ends with Close
	end     context.CancelFunc
	store   *store
	errors  *errorLog
	pages   *pages
	mux     *http.ServeMux
	origin  *http.CrossOriginProtection
	lives   chan struct{} // of capacity MaxLive: has a value for each page that updates every liveEvery
	hand    hand
}

// leastSecret is the least size of Config.Secret, in bytes.
const leastSecret = 32

// New makes the web UI of a database. It makes no database call.
func New(db *sql.DB, cfg Config) (*Handler, error) {
	var wrong []error
	if db == nil {
		wrong = append(wrong, errors.New("chanqweb: db must not be nil"))
	}
	if cfg.Timeout < 0 {
		wrong = append(wrong, fmt.Errorf("chanqweb: Config.Timeout is %v: must be 0 (10 s) or more", cfg.Timeout))
	}
	if cfg.MaxLive < 0 {
		wrong = append(wrong, fmt.Errorf("chanqweb: Config.MaxLive is %d: must be 0 (256) or more", cfg.MaxLive))
	}
	if err := cfg.Limits.Check(); err != nil {
		wrong = append(wrong, fmt.Errorf("chanqweb: Config.%w", err))
	}
	if n := len(cfg.Secret); n > 0 && n < leastSecret {
		wrong = append(wrong, fmt.Errorf("chanqweb: Config.Secret is %d bytes: must be at least %d, or unset for a random one", n, leastSecret))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if cfg.Title == "" {
		cfg.Title = "chanq"
	}
	cfg.Title = printable(cfg.Title)
	if cfg.Rights == nil {
		cfg.Rights = func(*http.Request) Rights { return Rights{} }
	}
	redacts := cfg.Redact != nil
	if !redacts {
		cfg.Redact = func(string, *chanqadmin.Entry) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.MaxLive == 0 {
		cfg.MaxLive = 256
	}
	if len(cfg.Secret) == 0 {
		cfg.Secret = make([]byte, leastSecret)
		rand.Read(cfg.Secret) // never fails
	}
	h := &Handler{
		cfg: cfg, redacts: redacts, pages: loadPages(), errors: &errorLog{log: cfg.Log, last: map[string]time.Time{}}, mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
		lives: make(chan struct{}, cfg.MaxLive), hand: hand{of: map[string]*running{}},
	}
	h.life, h.end = context.WithCancel(context.Background())
	h.store = newStore(h.life, db, cfg, h.errors.failed)
	h.routes()
	return h, nil
}

// Close ends the requests of pages that update automatically, which would delay http.Server.Shutdown: pass it to
// http.Server.RegisterOnShutdown. It also ends the reads of figures, and changes of many messages after their current step. It returns when
// the log of changes has their ends, or after Config.Timeout: call it again before you close the *sql.DB.
func (h *Handler) Close() { h.close(h.cfg.Timeout) }

func (h *Handler) routes() {
	h.mux.HandleFunc("GET /{$}", h.page(h.overview))
	h.mux.HandleFunc("GET /live", h.live(h.overview))
	h.mux.HandleFunc("GET /find", h.page(func(v *visit) (*answer, error) {
		return &answer{goTo: "q/" + url.PathEscape(v.URL.Query().Get("queue")) + "/"}, nil
	}))
	h.mux.HandleFunc("GET /schedules", h.page(h.schedules))
	h.mux.HandleFunc("POST /schedules/change", h.page(h.changeSchedule))
	h.mux.HandleFunc("GET /batches", h.page(h.batches))
	h.mux.HandleFunc("GET /batches/{id}", h.page(h.batch))
	h.mux.HandleFunc("GET /changes", h.page(h.changes))
	h.mux.HandleFunc("GET /q/{queue}", h.page(func(v *visit) (*answer, error) {
		return &answer{goTo: "q/" + url.PathEscape(v.PathValue("queue")) + "/"}, nil
	}))
	h.mux.HandleFunc("GET /q/{queue}/{$}", h.page(h.queue))
	h.mux.HandleFunc("GET /q/{queue}/live", h.live(h.queue))
	h.mux.HandleFunc("GET /q/{queue}/messages", h.page(h.messages))
	h.mux.HandleFunc("GET /q/{queue}/find", h.page(h.find))
	h.mux.HandleFunc("GET /q/{queue}/m/{id}", h.page(h.message))
	h.mux.HandleFunc("GET /q/{queue}/m/{id}/body", h.page(h.body))
	h.mux.HandleFunc("GET /q/{queue}/failures", h.page(h.failures))
	h.mux.HandleFunc("GET /q/{queue}/consumers", h.page(h.consumers))
	h.mux.HandleFunc("GET /q/{queue}/changes", h.page(h.changes))
	h.mux.HandleFunc("GET /q/{queue}/slots", h.page(h.slots))
	h.mux.HandleFunc("POST /q/{queue}/change", h.page(h.change))
	h.mux.HandleFunc("GET /assets/{name}", h.pages.asset)
	h.mux.HandleFunc("GET /", h.page(func(*visit) (*answer, error) { return nil, errNoPage }))
}

// ServeHTTP serves the web UI.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	h.mux.ServeHTTP(w, r)
}
