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

// needsOf returns the lines of a page for findings of n queues.
func needsOf(found []chanqfindings.Finding, n int) needsData {
	data := needsData{Queues: n, More: max(0, len(found)-needsShown)}
	for _, f := range found[:min(len(found), needsShown)] {
		f.Text, f.Remedy = printable(f.Text), printable(f.Remedy)
		data.Lines = append(data.Lines, needsLine{f, links[f.Kind]})
	}
	return data
}

// found returns the findings of queues, the worst first, by what was read last, and how many of the queues were looked at lately.
func (h *Handler) found(v *visit, names []string) (list []chanqfindings.Finding, n int) {
	for _, name := range names {
		w := h.store.watched(name)
		r := w.findings
		last, found := r.known(), chanqfindings.Figures{Queue: name, At: v.now}
		switch {
		case last.Err != nil: // Redact has panicked
			h.refusalOf(v, name, last.Err)
			found.Err = last.Err
		case max(r.tried(v.now), w.opened.tried(v.now)) > chanqfindings.OldAfter: // the driver does not return
			if found.At = last.At; last.At.IsZero() {
				found.Err = context.DeadlineExceeded
			}
		default:
			list = append(list, last.Value...)
			if v.now.Sub(last.At) <= chanqfindings.OldAfter {
				n++
			}
			continue
		}
		list, n = append(list, chanqfindings.Of(found, h.cfg.Limits, v.now)...), n+1
	}
	return chanqfindings.Worst(list), n
}

// found returns the findings of figures, with the errors that visitors may see.
func (s *store) found(f chanqfindings.Figures) []chanqfindings.Finding {
	for _, list := range [][]chanqadmin.Entry{f.Dead, f.Retried, f.Leased} {
		for i := range list {
			e := list[i]
			s.redact(f.Queue, &e)
			list[i].LastError, list[i].Type = e.LastError, e.Type
		}
	}
	return chanqfindings.Of(f, s.limits, time.Now())
}

// placeToLook is placeOf for the findings. They need an open queue, and not the newest: to open it again may wait for a lock.
func (s *store) placeToLook(w *watched) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		if w.opened.known().Value.queue == nil {
			w.opened.get(ctx)
		}
		s.shared.get(ctx)
		return s.place(ctx)
	}
}

// look reads the figures of a queue. Its error is in them.
func (s *store) look(ctx context.Context, w *watched) (f chanqfindings.Figures) {
	at, locked := w.opened.known(), s.locked()
	file := len(locked) > 0 && locked[0].File
	switch {
	case at.Value.queue != nil && file:
		f = chanqfindings.Look(ctx, chanqfindings.WithLocks{Queue: at.Value.queue, Found: locked})
	case at.Value.queue != nil:
		f = chanqfindings.Look(ctx, at.Value.queue)
	default:
		f = chanqfindings.Figures{Queue: w.name, At: time.Now(), Err: cmp.Or(at.Err, context.DeadlineExceeded)}
		if file {
			f.Locks = locked
		}
		if !file && !errors.Is(f.Err, chanq.ErrNoSchema) {
			within, cancel := context.WithTimeout(ctx, chanqfindings.Patience)
			defer cancel()
			f.Locks, _ = chanqadmin.Locks(within, s.db, w.name, s.config) // of the tables that all queues share
		}
		return f
	}
	_ = s.report(w.name, f.Err)
	return f
}

// othersAsked is how many queues askOthers looks at, every 2 s.
const othersAsked = 60

// askOthers looks at the queues that were looked at the longest ago: the overview names the findings of all queues. It looks more often at the
// queues of its page.
func (s *store) askOthers(context.Context) (struct{}, error) {
	if len(s.places) == cap(s.places) { // they would only wait
		return struct{}{}, nil
	}
	var list []*watched
	for _, name := range s.names.known().Value {
		list = append(list, s.watched(name))
	}
	slices.SortStableFunc(list, func(a, b *watched) int { return a.findings.known().At.Compare(b.findings.known().At) })
	for _, w := range list[:min(len(list), othersAsked)] { // those that still wait for a place are among them
		w.findings.ask()
	}
	return struct{}{}, nil
}
