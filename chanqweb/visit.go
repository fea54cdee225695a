package chanqweb

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// visit is one request, with the data that pages need.
type visit struct {
	*http.Request
	ctx    context.Context // ends with Config.Timeout
	w      http.ResponseWriter
	rights Rights
	now    time.Time
}

// answer is the result of a page. One field is set.
type answer struct {
	view   *view
	goTo   string                    // the address to go to, relative to the root of the UI
	stream func(http.ResponseWriter) // writes another kind of response
}

// view is the data of a template.
type view struct {
	Page  string // the name of the template
	Tab   string // the tab of the queue's pages that is marked
	Name  string // the title of the page
	Queue string
	Kind  chanq.Kind
	Data  any
	Live  string // the address of the events that update the page, relative to the root; "": it does not update

	placed

	// complete and show set the fields below, for all pages.
	Title  string
	Root   string // the relative path to the root of the UI
	Token  string
	Rights Rights
	Notice string
	Status int
	Now    time.Time
}

// page returns a handler for a function that answers visits.
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
			// http.Redirect would make the address absolute, without the prefix.
			w.Header().Set("Location", root(r)+a.goTo)
			w.WriteHeader(http.StatusSeeOther)
		case a.stream != nil:
			a.stream(w)
		default:
			h.show(v, a.view)
		}
	}
}

// answer calls do within one of the store's turns.
func (h *Handler) answer(v *visit, do func(*visit) (*answer, error)) (*answer, error) {
	give, err := take(v.ctx, h.store.turns)
	if err != nil {
		return nil, err
	}
	defer give()
	return do(v)
}

// root returns the relative path from a request's path to the root of the UI. The prefix is not known.
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
		h.cfg.Log.Error("chanqweb: a template failed", "page", view.Page, "error", err)
		http.Error(v.w, errNoTemplate, http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if view.Status != 0 {
		v.w.WriteHeader(view.Status)
	}
	_, _ = v.w.Write(body) // an error means that the visitor has disconnected
}

// complete sets the fields that all pages have.
func (h *Handler) complete(v *visit, view *view) {
	view.Title, view.Root, view.Rights, view.Now = h.cfg.Title, root(v.Request), v.rights, v.now
	view.placed = h.store.placed(view.Queue)
}

// fail shows an error.
func (h *Handler) fail(v *visit, err error) {
	why := h.refusalOf(v, v.PathValue("queue"), err)
	h.show(v, &view{Page: "trouble", Name: http.StatusText(why.status), Data: why.text, Status: why.status})
}
