package chanqweb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// visit is one request, with the data that pages need.
type visit struct {
	*http.Request
	ctx    context.Context // ends with Config.Timeout
	soon   context.Context // ends with patience
	w      http.ResponseWriter
	rights Rights
	now    time.Time
	give   func() // ends its turn on the queue; nil: it has none
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
	Live  string    // the address of the events that update the page, relative to the root; "": it does not update
	At    time.Time // when its figures were read; zero: now

	placed

	// complete and show set the fields below, for all pages.
	Title  string
	Root   string // the relative path to the root of the UI
	Token  string
	Rights Rights
	Notice string
	Ask    *question
	Cause  string        // of the group that the question is about
	InHand *progressLine // of a change of many messages of the queue
	Status int
	Now    time.Time
	Most   int // Config.MaxLive
}

// visit begins the visit of a request.
func (h *Handler) visit(w http.ResponseWriter, r *http.Request) (v *visit, end func()) {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	soon, cancelSoon := context.WithTimeout(ctx, patience)
	v = &visit{Request: r, ctx: ctx, soon: soon, w: w, rights: h.cfg.Rights(r), now: time.Now()}
	return v, func() {
		cancelSoon()
		cancel()
	}
}

// page returns a handler for a function that answers visits.
func (h *Handler) page(do func(*visit) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, cancel := h.visit(w, r)
		defer cancel()
		if r.Method == http.MethodPost {
			r.Body = http.MaxBytesReader(w, r.Body, mostForm)
			if r.ParseForm() != nil {
				h.fail(v, errForm)
				return
			}
		}
		a, err := h.answer(v, do)
		v.now = time.Now()
		switch {
		case err != nil:
			h.fail(v, err)
		case a.goTo != "":
			// http.Redirect would make the address absolute, without the prefix.
			w.Header().Set("Location", root(r)+a.goTo)
			w.WriteHeader(http.StatusSeeOther)
		case a.stream != nil:
			cancel() // a stream has a time limit of its own
			a.stream(w)
		default:
			h.show(v, a.view)
		}
	}
}

// driverGrace is how long a driver may take to notice the end of its context. SQLite itself waits up to 250 ms for a lock.
const driverGrace = 400 * time.Millisecond

// answer returns the result of do, or an error soon after the end of the visit's context, whatever the driver does. do then continues in
// its goroutine until the driver returns, and keeps its turn, so that such requests do not use up the connections.
func (h *Handler) answer(v *visit, do func(*visit) (*answer, error)) (a *answer, err error) {
	type result struct {
		a     *answer
		err   error
		panic any
	}
	done := make(chan result, 1)
	inner := *v
	go func() {
		var r result
		defer func() {
			if r.panic = recover(); inner.give != nil {
				inner.give()
			}
			done <- r
		}()
		r.a, r.err = do(&inner)
	}()
	wait := func(r result) (*answer, error) {
		if r.panic != nil {
			panic(r.panic) // net/http logs it
		}
		return r.a, r.err
	}
	select {
	case r := <-done:
		return wait(r)
	case <-v.ctx.Done():
	}
	late := time.NewTimer(driverGrace)
	defer late.Stop()
	select {
	case r := <-done:
		return wait(r)
	case <-late.C:
	}
	if v.Method == http.MethodPost {
		return nil, fmt.Errorf("%w: %w", errUnknown, context.Cause(v.ctx))
	}
	return nil, context.Cause(v.ctx)
}

// open returns the visit's queue and its kind, with a turn on it, which ends with the visit.
func (h *Handler) open(v *visit) (*chanqadmin.Queue, chanq.Kind, error) {
	w, err := h.store.watch(v, v.PathValue("queue"))
	if err != nil {
		return nil, 0, err
	}
	turns := w.looks
	if v.Method == http.MethodPost {
		turns = w.changes
	}
	if v.give, err = take(v.ctx, turns); err != nil {
		return nil, 0, err
	}
	found := w.opened.soon(v)
	if err := found.none(v.ctx); err != nil {
		return nil, 0, noQueue(err)
	}
	if errors.Is(found.Err, chanq.ErrNoSchema) {
		return nil, 0, found.Err
	}
	return found.Value.queue, found.Value.kind, nil
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
	if query := h.unsealed(v); query != nil {
		view.Notice = query.Get("said")
		to := "schedules/change"
		if view.Queue != "" {
			to = "q/" + view.Queue + "/change"
		}
		if v.rights.Change {
			view.Ask = questionOf(query, to)
		}
	}
	if view.InHand != nil && view.InHand.Running && view.Page == toFailures && view.Ask == nil {
		v.w.Header().Set("Refresh", strconv.Itoa(int(progressEvery.Seconds())))
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
	if view.At.IsZero() {
		view.At = v.now
	}
	view.placed, view.Most, view.InHand = h.store.known(view.Queue).placed, h.cfg.MaxLive, h.progressOf(view.Queue, v.now)
}

// fail shows an error.
func (h *Handler) fail(v *visit, err error) {
	why := h.refusalOf(v, v.PathValue("queue"), err)
	shown := &view{Page: "trouble", Name: http.StatusText(why.status), Status: why.status}
	data := troubleData{Text: why.text}
	if at := h.store.known(v.PathValue("queue")); at.queue != nil && !errors.Is(err, errNoQueue) {
		shown.Queue, shown.Kind, data.Look = at.queue.Name(), at.kind, v.Method == http.MethodPost
		if last := h.store.watched(shown.Queue).stats.known(); !last.At.IsZero() {
			data.Stats = &figures{Stats: last.Value, At: last.At}
		}
	}
	if why.status == http.StatusServiceUnavailable && v.Method == http.MethodGet {
		data.Again = true
		v.w.Header().Set("Refresh", strconv.Itoa(int(againEvery.Seconds())))
	}
	shown.Data = data
	h.show(v, shown)
}

// againEvery is when a browser asks again for a page that the database did not answer.
const againEvery = 5 * time.Second

// troubleData is the data of the page with an error.
type troubleData struct {
	Text  string
	Again bool     // the browser asks again
	Stats *figures // of the queue, as they were last known; nil: there are none
	Look  bool     // a change failed: the page of the queue shows what is so
}
