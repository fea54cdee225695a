package chanqweb

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// What goes wrong at the database. Its errors, and its driver's, name hosts, users and statements: they
// are for the log, and visitors are told a sentence.

var (
	errNoPage    = &refusal{404, "There is no such page."}
	errNoQueue   = &refusal{404, "There is no such queue."}
	errNoMessage = &refusal{404, "There is no such message any more. It may have been acked, purged, cancelled or trimmed."}
	errNoChange  = &refusal{403, "You may look, and not change anything."}
	errNoBodies  = &refusal{403, "Bodies are hidden from you."}
	errNoToken   = &refusal{403, "This form is not from this page, or from before it was started anew. Go back, load the page again, and try once more."}
	errForm      = &refusal{400, "This form cannot be understood."}
	errNoPlace   = &refusal{400, "There is no such place in the queue."}

	errNoAnswer   = &refusal{503, "The database has not answered in time."}
	errAway       = &refusal{503, "The database cannot be reached. The log of this page's program says why."}
	errFailed     = &refusal{503, "The database has answered with an error. The log of this page's program has it."}
	errNewer      = &refusal{503, "The tables of this queue are of a newer chanq than this page: upgrade the page's program."}
	errNoTemplate = "This page cannot be shown; the log says why."
)

// refusal is an error that the visitor made, or meets.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func asRefusal(ctx context.Context, err error) *refusal {
	var own *refusal
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, chanq.ErrNoSchema):
		return errNoQueue
	case errors.Is(err, chanq.ErrNotFound):
		return errNoMessage
	case errors.Is(err, chanq.ErrNewerSchema):
		return errNewer
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return errNoAnswer
	case unreached(err):
		return errAway
	}
	return errFailed
}

// unreached: the connection is at fault, or there is none.
func unreached(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// teller logs what visitors are told a sentence of, each kind of it once a minute: pages that follow the
// figures meet it every other second.
type teller struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by queue and sentence
}

const (
	tellEvery = time.Minute
	mostTold  = 1000 // names of queues are the visitors' own
)

func (t *teller) tell(queue, sentence string, err error) {
	key := queue + "\x00" + sentence
	t.mu.Lock()
	now := time.Now()
	known := now.Sub(t.last[key]) < tellEvery
	if !known {
		if len(t.last) >= mostTold {
			clear(t.last)
		}
		t.last[key] = now
	}
	t.mu.Unlock()
	if !known {
		t.log.Error("chanqweb: the database does not answer as it should", "queue", queue, "told", sentence, "error", err)
	}
}

// told is the sentence for an error of the database, which is logged.
func (h *Handler) told(v *visit, queue string, err error) *refusal {
	why := asRefusal(v.ctx, err)
	if why.status >= 500 && v.Request.Context().Err() == nil {
		h.teller.tell(queue, why.text, err)
	}
	return why
}
