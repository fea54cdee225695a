package chanqweb

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// visit is one request, with what pages need to know of it.
type visit struct {
	*http.Request
	ctx    context.Context // ends with Config.Timeout
	w      http.ResponseWriter
	rights Rights
	now    time.Time
}

// answer is what a page answers: one of its fields.
type answer struct {
	view   *view
	goTo   string                    // another page, from the root of this one
	stream func(http.ResponseWriter) // anything else
}

// view is what a template shows.
type view struct {
	Page  string // which template
	Tab   string // which of a queue's pages it is
	Name  string // of the page, for the window's title
	Queue string
	Kind  chanq.Kind
	Data  any
	Live  string // what follows the figures, from the root; "" is none

	placed

	// The rest is the same for all pages.
	Title  string
	Root   string // the way from here to the root of the page
	Token  string
	Rights Rights
	Notice string
	Status int
	Now    time.Time
}

// page makes a handler of what answers a visit.
func (h *Handler) page(do func(*visit) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
		defer cancel()
		v := &visit{Request: r, ctx: ctx, w: w, rights: h.cfg.Rights(r), now: time.Now()}
		a, err := h.answer(v, do)
		switch {
		case err != nil:
			h.fail(v, err)
		case a.goTo != "":
			// By hand: http.Redirect would make of it an address without the prefix.
			w.Header().Set("Location", root(r)+a.goTo)
			w.WriteHeader(http.StatusSeeOther)
		case a.stream != nil:
			a.stream(w)
		default:
			h.show(v, a.view)
		}
	}
}

// answer has a turn at the database for as long as it takes.
func (h *Handler) answer(v *visit, do func(*visit) (*answer, error)) (*answer, error) {
	give, err := take(v.ctx, h.store.turns)
	if err != nil {
		return nil, err
	}
	defer give()
	return do(v)
}

// root is the relative way from a request's path to the root of the page, where the
// prefix is not known.
func root(r *http.Request) string {
	if n := strings.Count(r.URL.EscapedPath(), "/"); n > 1 {
		return strings.Repeat("../", n-1)
	}
	return "./"
}

func (h *Handler) show(v *visit, view *view) {
	h.complete(v, view)
	if v.rights.Change {
		view.Token = h.token(nonce(v.w, v.Request), v.rights.User)
	}
	if view.Notice == "" {
		view.Notice = h.noticeOf(v)
	}
	body, err := h.pages.render(view.Page, "layout", view)
	if err != nil {
		h.cfg.Log.Error("chanqweb: a page cannot be shown", "page", view.Page, "error", err)
		http.Error(v.w, errNoTemplate, http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if view.Status != 0 {
		v.w.WriteHeader(view.Status)
	}
	_, _ = v.w.Write(body) // who is gone misses it
}

// complete fills in what is the same for all pages.
func (h *Handler) complete(v *visit, view *view) {
	view.Title, view.Root, view.Rights, view.Now = h.cfg.Title, root(v.Request), v.rights, v.now
	view.placed = h.store.placed(view.Queue)
}

// fail shows what went wrong.
func (h *Handler) fail(v *visit, err error) {
	why := h.told(v, v.PathValue("queue"), err)
	h.show(v, &view{Page: "trouble", Name: http.StatusText(why.status), Data: why.text, Status: why.status})
}
