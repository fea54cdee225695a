// Package chanqweb is a page on which operators look at queues, and change what is in
// them where they may:
//
//	page, err := chanqweb.New(db, chanqweb.Config{Title: "shop"})
//	mux.Handle("/queues/", http.StripPrefix("/queues", page))
//
// It works under any prefix that is stripped from the path, and behind any proxy that
// strips it: its links are relative. Nothing of it comes from elsewhere, and it needs no
// JavaScript but to follow the figures as they change.
//
// Who asks is the server's affair: wrap the page in what knows your users, or in
// WithPassword, or in LocalOnly; without one of these whoever reaches the server sees your
// queues. What they may do is Config.Rights: nothing but look, unless it says so, and
// without the bodies and the values of headers. Every request that changes something
// carries a token that other sites cannot know, and is logged.
//
// What a page asks of the database is bounded, however deep the queues are: counts end at
// 10,000, lists go on from a place, and a figure that somebody has just asked for is not
// asked for again.
package chanqweb

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Config says what the page shows, and to whom. The zero value shows all queues of the
// database, changes nothing and hides bodies.
type Config struct {
	Dialect chanq.Dialect // as in chanq.Config
	Schema  string        // as in chanq.Config

	// Title is what the page calls the database. Default "chanq".
	Title string

	// Rights says what whoever sent a request may do. It is called once a request, by many
	// goroutines. Default: look.
	Rights func(*http.Request) Rights

	// Redact changes a message before any of it is shown, whoever looks: its errors, keys, headers, body. In
	// lists it has neither headers nor body, for the page of slots nothing but Key and Slot, and for the groups of
	// failures nothing but the ID, the state, the cause and LastError: hide LastError there if it depends on other fields.
	// Of what handlers returned as an error nothing else is hidden (see Rights.Bodies).
	// It is called by many goroutines, and what it is given is its own. Default: nothing is changed.
	Redact func(queue string, e *chanqadmin.Entry)

	// Log gets a record of each change, and of each that was refused; and the errors of the database, of
	// which a page tells no more than a sentence. Default slog.Default().
	Log *slog.Logger

	// History is what queues were like. Default: what chanq keeps of them, chanqadmin.Queue.History.
	History History

	// Secret is what the tokens of forms are made of: the same in all processes that serve
	// the page at one address, 32 bytes or more. Default: random, for one process.
	Secret []byte

	// Timeout is the longest that a page waits for the database. Default 10 s.
	Timeout time.Duration

	// MaxLive is how many pages may follow the figures at a time; others show them as they were when
	// they were opened. Default 64.
	MaxLive int
}

// Rights are what somebody may do. The zero value is to look.
type Rights struct {
	User   string // who it is, for the log
	Change bool   // redrive, purge, cancel, pause, resume
	Bodies bool   // see bodies, values of headers, and what a codec said of those it cannot decode
}

// Handler serves the page. It is safe for concurrent use, and has no goroutines but those
// of requests.
type Handler struct {
	cfg    Config
	store  *store
	teller *teller
	pages  *pages
	mux    *http.ServeMux
	origin *http.CrossOriginProtection
	lives  chan struct{} // of capacity MaxLive: held by pages that follow the figures
	closed chan struct{}
}

// pagesAtOnce is how many requests may use the database at a time.
const pagesAtOnce = 4

// leastSecret is in bytes.
const leastSecret = 32

// New makes the page of a database. It asks nothing of it.
func New(db *sql.DB, cfg Config) (*Handler, error) {
	var wrong []error
	if db == nil {
		wrong = append(wrong, errors.New("chanqweb: db is nil"))
	}
	if cfg.Timeout < 0 {
		wrong = append(wrong, errors.New("chanqweb: Config.Timeout is negative"))
	}
	if cfg.MaxLive < 0 {
		wrong = append(wrong, errors.New("chanqweb: Config.MaxLive is negative"))
	}
	if n := len(cfg.Secret); n > 0 && n < leastSecret {
		wrong = append(wrong, errors.New("chanqweb: Config.Secret is short: must be 32 bytes or more"))
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
	if cfg.Redact == nil {
		cfg.Redact = func(string, *chanqadmin.Entry) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.MaxLive == 0 {
		cfg.MaxLive = 64
	}
	if len(cfg.Secret) == 0 {
		cfg.Secret = make([]byte, leastSecret)
		rand.Read(cfg.Secret) // which never fails
	}
	told := &teller{log: cfg.Log, last: map[string]time.Time{}}
	h := &Handler{
		cfg: cfg, store: newStore(db, cfg), teller: told, pages: loadPages(), mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
		lives: make(chan struct{}, cfg.MaxLive), closed: make(chan struct{}),
	}
	h.routes()
	return h, nil
}

// Close ends the pages that follow the figures, which would keep http.Server.Shutdown
// waiting: give it to http.Server.RegisterOnShutdown. Call it once.
func (h *Handler) Close() { close(h.closed) }

func (h *Handler) routes() {
	h.mux.HandleFunc("GET /{$}", h.page(h.overview))
	h.mux.HandleFunc("GET /live", h.live(h.overview))
	h.mux.HandleFunc("GET /find", h.page(func(v *visit) (*answer, error) {
		return &answer{goTo: "q/" + url.PathEscape(v.URL.Query().Get("queue")) + "/"}, nil
	}))
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
	h.mux.HandleFunc("GET /q/{queue}/members", h.page(h.members))
	h.mux.HandleFunc("GET /q/{queue}/slots", h.page(h.slots))
	h.mux.HandleFunc("POST /q/{queue}/change", h.page(h.change))
	h.mux.HandleFunc("GET /assets/{name}", h.pages.asset)
	h.mux.HandleFunc("GET /", h.page(func(*visit) (*answer, error) { return nil, errNoPage }))
}

// ServeHTTP serves the page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	h.mux.ServeHTTP(w, r)
}
