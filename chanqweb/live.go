package chanqweb

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

// Pages that follow the figures get the part that changes anew, as server-sent events.

const (
	liveEvery = 2 * time.Second // at most
	// liveLasts is when a page has to ask again, and so to say again who it is for.
	liveLasts = 15 * time.Minute
	liveWrite = 10 * time.Second
)

// live follows what answers a visit.
func (h *Handler) live(do func(*visit) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.lives <- struct{}{}:
			defer func() { <-h.lives }()
		default:
			http.Error(w, "Too many pages follow the figures.", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
		out := http.NewResponseController(w)
		end := time.NewTimer(liveLasts)
		defer end.Stop()
		well := time.Now() // when the last figures were shown: by the page itself, if by no event
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

// event sends the part of a page that changes, as it is now; or that it is not known, since well.
func (h *Handler) event(w http.ResponseWriter, r *http.Request, out *http.ResponseController, do func(*visit) (*answer, error), well *time.Time) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	v := &visit{Request: r, ctx: ctx, w: w, rights: h.cfg.Rights(r), now: time.Now()}
	shown := &view{Page: "trouble"}
	if a, err := h.answer(v, do); err != nil {
		shown.Data = fmt.Sprintf("%s There are no figures since %s (%s).", h.told(v, r.PathValue("queue"), err).text, well.UTC().Format("15:04:05 UTC"), lasting(v.now.Sub(*well)))
	} else {
		shown, *well = a.view, v.now
	}
	h.complete(v, shown)
	part, err := h.pages.render(shown.Page, "live", shown)
	if err != nil {
		return err
	}
	// A server may have a deadline for whole answers; this one has one for each event. Where
	// none can be set, the server's counts.
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
