package chanqweb

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// Pages that update automatically receive the part that changes as server-sent events. An event shows what the readers know, so its cost
// on the database does not depend on the number of pages.

const (
	liveEvery = 2 * time.Second // the time between two events
	// pollEvery is how often a page above Config.MaxLive asks for an event.
	pollEvery = 10 * time.Second
	// retryEvery is when a browser asks again after an interruption.
	retryEvery = 3 * time.Second
	// liveLasts is when a page has to send a new request, so that its rights are checked again.
	liveLasts = 15 * time.Minute
	liveWrite = 10 * time.Second // the time limit of writing an event
)

// live returns a handler that repeatedly sends the part of a page that updates. Above Config.MaxLive it sends it once: the browser asks
// again, and may then find room.
func (h *Handler) live(do func(*visit) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
		e := &events{h: h, w: w, r: r, out: http.NewResponseController(w), do: do, well: time.Now()}
		select {
		case h.lives <- struct{}{}:
			defer func() { <-h.lives }()
		default:
			e.begin = fmt.Sprintf("retry: %d\nevent: poll\n", pollEvery.Milliseconds())
			_ = e.send() // an error means that the visitor has disconnected
			return
		}
		e.begin = fmt.Sprintf("retry: %d\n", retryEvery.Milliseconds())
		end := time.NewTimer(liveLasts)
		defer end.Stop()
		next := time.NewTicker(liveEvery)
		defer next.Stop()
		for e.send() == nil {
			e.begin = ""
			select {
			case <-next.C:
				continue
			case <-r.Context().Done():
			case <-h.life.Done():
			case <-end.C:
			}
			return
		}
	}
}

// events are those of one request.
type events struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	out   *http.ResponseController
	do    func(*visit) (*answer, error)
	begin string    // the fields of the next event before its data
	well  time.Time // when figures were last shown, at first by the page itself
}

// send sends an event with the part of the page that updates. If there are no figures at all, it says since when.
func (e *events) send() error {
	v, cancel := e.h.visit(e.w, e.r)
	defer cancel()
	shown := &view{Page: "trouble"}
	if a, err := e.do(v); err != nil {
		why := e.h.refusalOf(v, e.r.PathValue("queue"), err)
		shown.Data = troubleData{Text: fmt.Sprintf("%s No figures since %s (%s).", why.text, e.well.UTC().Format("15:04:05 UTC"), lasting(v.now.Sub(e.well)))}
	} else {
		shown, e.well = a.view, v.now
	}
	v.now = time.Now()
	e.h.complete(v, shown)
	part, err := e.h.pages.render(shown.Page, "live", shown)
	if err != nil {
		return err
	}
	// A server may have a deadline for whole responses. This sets a deadline for each event. If it cannot be set, the server's
	// deadline applies.
	_ = e.out.SetWriteDeadline(time.Now().Add(liveWrite))
	var b bytes.Buffer
	b.WriteString(e.begin)
	for text := range bytes.Lines(part) {
		fmt.Fprintf(&b, "data: %s\n", bytes.TrimRight(text, "\r\n"))
	}
	b.WriteByte('\n')
	if _, err := e.w.Write(b.Bytes()); err != nil {
		return err
	}
	return e.out.Flush()
}
