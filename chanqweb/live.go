package chanqweb

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

// Pages that update automatically receive the part that changes as server-sent events.

const (
	liveEvery = 2 * time.Second // the least time between two events
	// liveLasts is when a page has to send a new request, so that its rights are checked again.
	liveLasts = 15 * time.Minute
	liveWrite = 10 * time.Second // the time limit of writing an event
)

// live returns a handler that repeatedly sends the part of a page that updates.
func (h *Handler) live(do func(*visit) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.lives <- struct{}{}:
			defer func() { <-h.lives }()
		default:
			http.Error(w, "Too many pages update automatically (Config.MaxLive).", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
		out := http.NewResponseController(w)
		end := time.NewTimer(liveLasts)
		defer end.Stop()
		well := time.Now() // when figures were last shown, at first by the page itself
		for {
			began := time.Now()
			if h.event(w, r, out, do, &well) != nil {
				return
			}
			pause := time.NewTimer(max(liveEvery, share*time.Since(began)))
			select {
			case <-pause.C:
				continue
			case <-r.Context().Done():
			case <-h.closed:
			case <-end.C:
			}
			pause.Stop()
			return
		}
	}
}

// event sends the part of a page that updates. After an error it sends the error instead, and the time since which there are no
// figures.
func (h *Handler) event(w http.ResponseWriter, r *http.Request, out *http.ResponseController, do func(*visit) (*answer, error), well *time.Time) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	v := &visit{Request: r, ctx: ctx, w: w, rights: h.cfg.Rights(r), now: time.Now()}
	shown := &view{Page: "trouble"}
	if a, err := h.answer(v, do); err != nil {
		shown.Data = fmt.Sprintf("%s No figures since %s (%s).", h.refusalOf(v, r.PathValue("queue"), err).text, well.UTC().Format("15:04:05 UTC"), lasting(v.now.Sub(*well)))
	} else {
		shown, *well = a.view, v.now
	}
	h.complete(v, shown)
	part, err := h.pages.render(shown.Page, "live", shown)
	if err != nil {
		return err
	}
	// A server may have a deadline for whole responses. This sets a deadline for each event. If it cannot be set, the server's
	// deadline applies.
	_ = out.SetWriteDeadline(time.Now().Add(liveWrite))
	for text := range bytes.Lines(part) {
		if _, err := fmt.Fprintf(w, "data: %s\n", bytes.TrimRight(text, "\r\n")); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(w, "\n"); err != nil {
		return err
	}
	return out.Flush()
}
