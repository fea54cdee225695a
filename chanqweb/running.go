package chanqweb

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/chanqadmin"
)

// running is a change of more messages than a request can wait for. Its goroutine ends with the change, with stop, or with Handler.Close.
type running struct {
	verb, by string
	began    time.Time
	stop     context.CancelFunc
	changed  atomic.Int64
	said     atomic.Pointer[ending] // nil until its end
}

// ending is the end of a running change.
type ending struct {
	text string
	at   time.Time
}

// hand has the running change of each queue, or the last one.
type hand struct {
	mu  sync.Mutex
	of  map[string]*running
	all sync.WaitGroup // those that run
}

// inHand returns the change of a queue that is running, or has ended a moment ago, or nil.
func (h *Handler) inHand(queue string) *running {
	h.hand.mu.Lock()
	defer h.hand.mu.Unlock()
	r := h.hand.of[queue]
	if r != nil && r.ended() && time.Since(r.said.Load().at) > shownFor {
		delete(h.hand.of, queue)
		return nil
	}
	return r
}

func (r *running) ended() bool { return r.said.Load() != nil }

// start begins a change that its goroutine makes, and goes to the page that shows its progress.
func (h *Handler) start(v *visit, q *chanqadmin.Queue, c change, d action, s chanqadmin.Select) (*answer, error) {
	ctx, stop := context.WithCancel(h.life)
	r := &running{verb: d.verb, by: printable(v.actor()), began: v.now, stop: stop}
	by := *v // the goroutine outlasts the visit
	h.hand.mu.Lock()
	defer h.hand.mu.Unlock()
	if other := h.hand.of[q.Name()]; h.life.Err() != nil || other != nil && !other.ended() {
		stop()
		return nil, errInHand
	}
	h.hand.of[q.Name()] = r
	h.hand.all.Go(func() {
		defer stop()
		n, note, err := h.do(ctx, &by, q, c, d, s, func(n int) { r.changed.Store(int64(n)) })
		text := d.result(n)
		switch {
		case err != nil && ctx.Err() != nil:
			text = fmt.Sprintf("stopped after %s. Its last step might have been applied as well.", messages(n))
		case err != nil:
			text = asRefusal(context.Background(), d.failed(n, err)).text
		}
		r.said.Store(&ending{text + note, time.Now()})
	})
	return &answer{goTo: "q/" + url.PathEscape(q.Name()) + "/" + toFailures}, nil
}

// errInHand refuses a second change of many messages of a queue.
var errInHand = &refusal{http.StatusConflict, "Another change of this queue is running: wait for its end, or stop it. Nothing was changed."}

// close ends all running changes, and waits until the log of changes says so, up to a time.
func (h *Handler) close(within time.Duration) {
	h.hand.mu.Lock()
	h.end() // no other starts
	h.hand.mu.Unlock()
	logged := make(chan struct{})
	go func() { // ends with them
		h.hand.all.Wait()
		close(logged)
	}()
	select {
	case <-logged:
	case <-time.After(within):
	}
}

// stop stops the running change of a queue.
func (h *Handler) stop(v *visit, queue string) *answer {
	if r := h.inHand(queue); r != nil {
		r.stop()
		h.cfg.Log.Info("chanqweb: a change is stopped", "queue", queue, "user", v.rights.User, "from", v.RemoteAddr)
	}
	return &answer{goTo: "q/" + url.PathEscape(queue) + "/" + toFailures}
}

// progressEvery is when a browser asks again for the page that shows a running change.
const progressEvery = 2 * time.Second

// progressLine is what a page says about a running change.
type progressLine struct {
	Text    string
	Running bool
}

// progressOf returns what a page says about the change of a queue in hand, or nil.
func (h *Handler) progressOf(queue string, now time.Time) *progressLine {
	r := h.inHand(queue)
	if r == nil {
		return nil
	}
	if end := r.said.Load(); end != nil {
		return &progressLine{Text: fmt.Sprintf("%s by %s: %s", r.verb, r.by, end.text)}
	}
	return &progressLine{fmt.Sprintf("%s by %s, for %s: %s so far.", r.verb, r.by, lasting(now.Sub(r.began)), messages(int(r.changed.Load()))), true}
}
