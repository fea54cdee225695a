package chanqweb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// needsShown is how many findings the overview shows.
const needsShown = 5

// needsLine is one finding on the overview.
type needsLine struct {
	chanqfindings.Finding
	Link string // what to do, in a word or two
}

// needsData has the findings of the overview, the worst first.
type needsData struct {
	Lines  []needsLine
	More   int // findings that are not shown
	Queues int // that were looked at
}

// links are the words of the links to the pages of findings.
var links = map[chanqfindings.Kind]string{
	chanqfindings.Locked: "Look at it", chanqfindings.Unreachable: "Look at it", chanqfindings.Unknown: "Look at it",
	chanqfindings.ConsumerLost: "Show consumers", chanqfindings.NoConsumer: "Look at it", chanqfindings.Stuck: "Show messages",
	chanqfindings.Failing: "See failures", chanqfindings.BlockedKey: "See slots", chanqfindings.Late: "Look at it",
	chanqfindings.Dead: "See failures", chanqfindings.Paused: "Look at it",
}

// needsOf returns the lines of the overview for figures.
func (h *Handler) needsOf(now time.Time, list []chanqfindings.Figures) needsData {
	var found []chanqfindings.Finding
	for _, f := range list {
		found = append(found, chanqfindings.Of(h.concealed(f), h.cfg.Limits, now)...)
	}
	found = chanqfindings.Worst(found)
	data := needsData{Queues: len(list), More: max(0, len(found)-needsShown)}
	for _, f := range found[:min(len(found), needsShown)] {
		f.Text, f.Remedy = printable(f.Text), printable(f.Remedy)
		data.Lines = append(data.Lines, needsLine{f, links[f.Kind]})
	}
	return data
}

// concealed returns figures with the errors that visitors may see.
func (h *Handler) concealed(f chanqfindings.Figures) chanqfindings.Figures {
	for _, list := range []*[]chanqadmin.Entry{&f.Dead, &f.Retried} {
		*list = slices.Clone(*list) // the others are shared
		for i := range *list {
			e := (*list)[i]
			h.cfg.Redact(f.Queue, &e)
			(*list)[i].LastError = e.LastError
		}
	}
	return f
}

// placeToLook is placeOf for the findings. They need an open queue, and not the newest: to open it again may wait for a lock.
func (s *store) placeToLook(w *watched) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		if w.opened.known().Value.queue == nil {
			w.opened.get(ctx)
		}
		s.file.get(ctx)
		return s.place(ctx)
	}
}

// look reads the figures of a queue. Its error is in them.
func (s *store) look(ctx context.Context, w *watched) (f chanqfindings.Figures) {
	at, file := w.opened.known(), s.file.known()
	file.Value.is = file.Value.is && file.Err == nil
	switch {
	case at.Value.queue != nil && file.Value.is:
		f = chanqfindings.Look(ctx, chanqfindings.WithLocks{Queue: at.Value.queue, Found: file.Value.list, Err: file.Err})
	case at.Value.queue != nil:
		f = chanqfindings.Look(ctx, at.Value.queue)
	default:
		f = chanqfindings.Figures{Queue: w.name, At: time.Now(), Err: cmp.Or(at.Err, error(errNoAnswer))}
		if file.Value.is {
			f.Locks = file.Value.list
		}
		if !file.Value.is && !errors.Is(f.Err, chanq.ErrNoSchema) {
			within, cancel := context.WithTimeout(ctx, chanqfindings.Patience)
			defer cancel()
			f.Locks, _ = chanqadmin.Locks(within, s.db, w.name, s.config) // of the tables that all queues share
		}
		return f
	}
	_ = s.report(w.name, f.Err)
	return f
}

// needs returns the findings of the queues of a page, by the figures that are read soon, or else the last ones.
func (h *Handler) needs(v *visit, queues []queueLine) needsData {
	var list []chanqfindings.Figures
	for _, q := range queues {
		h.store.watched(q.Name).findings.ask() // after the counts, which must not wait for them
	}
	for _, q := range queues {
		if found := h.store.watched(q.Name).findings.get(v.soon); !found.At.IsZero() {
			list = append(list, found.Value)
		}
	}
	return h.needsOf(v.now, list)
}
