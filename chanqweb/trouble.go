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
	"github.com/chanq/chanq/chanqadmin"
)

// Errors of the database and its driver contain names of hosts, users and statements. The log receives the error, and the visitor sees a
// sentence.

var (
	errNoPage    = &refusal{404, "There is no such page."}
	errNoQueue   = &refusal{404, "There is no such queue."}
	errNoMessage = &refusal{404, "There is no such message. It may have been acked, purged, cancelled or trimmed."}
	errNoChange  = &refusal{403, "You do not have the right to change anything."}
	errNoBodies  = &refusal{403, "You do not have the right to see bodies."}
	errNoToken   = &refusal{403, "This form comes from another site, or is older than the last restart of the web UI. Go back, reload the page, and repeat the change."}
	errForm      = &refusal{400, "This form has a field that is missing or not valid."}
	errUnknown   = &refusal{503, "The database did not confirm the change in time: the outcome is unknown. Look at the queue before you repeat it."}
	errHeard     = &refusal{409, "This consumer is running. Stop its process first, and release its leases when it has not been heard for 25 s. Nothing was changed."}
	errNotDone   = &refusal{503, "The database did not answer in time. Nothing was changed."}
	errNoPlace   = &refusal{400, "The cursor in the address is not valid. Begin with the first page."}

	errNoAnswer   = &refusal{503, "The database did not answer in time."}
	errAway       = &refusal{503, "The database cannot be reached. The log of the web UI has the error."}
	errFailed     = &refusal{503, "The database returned an error. The log of the web UI contains it."}
	errNewer      = &refusal{503, "The tables of this queue are of a newer version of chanq: upgrade the web UI."}
	errNoTemplate = "This page cannot be shown. The log of the web UI has the error."
)

// refusal is the form of an error that the visitor sees.
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
	case errors.Is(err, chanqadmin.ErrHeard):
		return errHeard
	case errors.Is(err, chanq.ErrNewerSchema):
		return errNewer
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return errNoAnswer
	case unreached(err):
		return errAway
	}
	return errFailed
}

// unreached reports whether the connection is broken or could not be made.
func unreached(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// errorLog logs the errors for which visitors see a sentence, each sentence once per minute: a page that updates automatically repeats
// the error every 2 s.
type errorLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // when it was logged, by queue and sentence
}

const (
	logEvery   = time.Minute
	mostLogged = 1000 // sentences that are remembered; bounded, because visitors choose the names of queues
)

func (l *errorLog) add(queue, sentence string, err error) {
	key := queue + "\x00" + sentence
	l.mu.Lock()
	now := time.Now()
	known := now.Sub(l.last[key]) < logEvery
	if !known {
		if len(l.last) >= mostLogged {
			clear(l.last)
		}
		l.last[key] = now
	}
	l.mu.Unlock()
	if !known {
		l.log.Error("chanqweb: a statement failed", "queue", queue, "shown", sentence, "error", err)
	}
}

// failed logs an error of a reader.
func (l *errorLog) failed(queue string, err error) {
	if why := asRefusal(context.Background(), err); why.status >= 500 {
		l.add(queue, why.text, err)
	}
}

// refusalOf returns the form of an error that the visitor sees, and logs an error of the database.
func (h *Handler) refusalOf(v *visit, queue string, err error) *refusal {
	why := asRefusal(v.ctx, err)
	if why.status >= 500 && v.Request.Context().Err() == nil {
		h.errors.add(queue, why.text, err)
	}
	return why
}
