package chanq

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// A watch has the database wait until there is something to claim, for the idle consumers
// of a *sql.DB with ConsumerConfig.WatchEvery: sqlbatch.Dialect.Watch. One request after
// another, each for all of their queues, on one session; claims use others. To its seat
// (bell.go) a consumer's part of it is a Bell.
//
// No message is missed between two requests, or while its consumer claims: a request
// looks for what is there, not for what has come. A consumer arms its ear before its
// last look, and what that look did not see was not committed, so the request that
// runs then or begins later sees it. What is found for a consumer that is not armed is of no
// use: it will look by itself.
//
// A chair is taken by each request anew. The first one for a queue looks once, and so tells
// at once whether there was a chair.

const (
	// watchFor is how long a request is, and watchLong if one after another brings nothing
	// and there is no queue left that might come to the others: whoever comes waits for the
	// request that is under way, and whoever stands still keeps a chair until it ends.
	watchFor, watchLong = time.Second, 8 * time.Second
	// watchBriefly is the same while a queue that has its chair is left out: its consumer
	// is at a claim, and comes back soon.
	watchBriefly = 50 * time.Millisecond
	// watchPatience is how much longer than it should a request may take.
	watchPatience = 5 * time.Second
)

// watcher is the watch on one *sql.DB.
//
// Its goroutine runs from the first consumer's start to the end of the last one, which
// joins it.
type watcher struct {
	dialect  sqlbatch.Dialect
	sessions *sessions
	life     context.Context // ends with the last consumer, by attention to the request
	end      context.CancelFunc
	ended    chan struct{} // the goroutine has
	work     chan struct{} // of capacity 1: an ear was armed

	mu    sync.Mutex   // guards what follows; held for moments, for no statement
	lines []*watchLine // those of all consumers, in the order of their names: the text depends on them
	quiet int          // requests for all of them, one after another, that found nothing
}

// openWatch has a consumer of q take part in the watch on its *sql.DB. It returns nil where
// the database has none.
func openWatch(q *queue, every time.Duration) (*watchEar, error) {
	if every == 0 || q.dialect.Watch(nil, every, every).Text == "" {
		return nil, nil
	}
	join := func() *watchEar {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if s := shared.of[q.db]; s != nil && s.watch != nil {
			return s.watch.join(q, every)
		}
		return nil
	}
	if ear := join(); ear != nil {
		return ear, nil
	}
	all, err := openSessions(q.db, q.dialect, q.cfg.SessionMaxAge, session.Need{Kind: session.Watch, Sessions: 1})
	if err != nil {
		return nil, err
	}
	w := &watcher{dialect: q.dialect, sessions: all[0], ended: make(chan struct{}), work: make(chan struct{}, 1)}
	w.life, w.end = context.WithCancel(context.Background())
	shared.mu.Lock()
	first := shared.of[q.db].watch == nil
	if first {
		shared.of[q.db].watch = w
		go w.run()
	}
	ear := shared.of[q.db].watch.join(q, every)
	shared.mu.Unlock()
	if !first {
		w.end()
		all[0].close()
	}
	return ear, nil
}

// join adds a consumer. shared.mu is held.
func (w *watcher) join(q *queue, every time.Duration) *watchEar {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := sqlbatch.Names{Schema: q.key.schema, Queue: q.name}
	byName := func(l *watchLine, n sqlbatch.Names) int {
		if c := strings.Compare(l.names.Schema, n.Schema); c != 0 {
			return c
		}
		return strings.Compare(l.names.Queue, n.Queue)
	}
	at, found := slices.BinarySearchFunc(w.lines, names, byName)
	if !found {
		w.lines = slices.Insert(w.lines, at, &watchLine{names: names, chore: housework{queue: q, task: "watch", op: "watch"}})
	}
	ear := &watchEar{watcher: w, line: w.lines[at], every: every}
	ear.line.ears = append(ear.line.ears, ear)
	return ear
}

// leave is the end of the consumer's listening. If it was the last one, the request is
// ended. Then call close, once.
func (e *watchEar) leave() (close func()) {
	w := e.watcher
	shared.mu.Lock()
	defer shared.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	e.line.ears = slices.DeleteFunc(e.line.ears, func(o *watchEar) bool { return o == e })
	if len(e.line.ears) == 0 {
		w.lines = slices.DeleteFunc(w.lines, func(o *watchLine) bool { return o == e.line })
	}
	endChore := func() {}
	if len(e.line.ears) == 0 {
		endChore = e.line.chore.end
	}
	if len(w.lines) > 0 {
		return endChore
	}
	shared.of[e.line.chore.queue.db].watch = nil
	w.end()
	return func() {
		<-w.ended
		w.sessions.close()
		endChore()
	}
}

// run makes one request after another.
func (w *watcher) run() {
	defer close(w.ended)
	failed := retry.Backoff{Low: retry.RefusedPause, High: 4 * time.Second}
	for w.life.Err() == nil {
		r := w.plan(monotonic())
		if !r.looks {
			w.await(r.wait)
			continue
		}
		found, err := w.request(r)
		switch {
		case w.life.Err() != nil:
		case err != nil:
			w.deafen(r, err)
			retry.Sleep(w.life, failed.Pause())
		default:
			failed.Reset()
			if w.answered(r, found) {
				retry.Sleep(w.life, r.every) // while whoever was rung claims
			}
		}
	}
}

// await waits for work, or for some time.
func (w *watcher) await(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.life.Done():
	case <-w.work:
	case <-timer.C:
	}
}

// watchRequest is what a request is to do.
type watchRequest struct {
	lines   []*watchLine // as watched
	watched []sqlbatch.Watched
	looks   bool          // at any of them
	every   time.Duration // between looks
	atMost  time.Duration
	wait    time.Duration // without a look: until there may be one
}

// plan decides on the next request.
func (w *watcher) plan(now time.Duration) watchRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := watchRequest{every: math.MaxInt64, atMost: min(watchFor<<min(w.quiet, 10), watchLong), wait: time.Hour}
	lines := w.lines[:min(len(w.lines), sqlbatch.MostWatched)]
	for _, l := range w.lines[len(lines):] {
		l.deafen()
	}
	duties := make([]watchDuty, len(lines))
	for i, l := range lines {
		var left time.Duration
		duties[i], left = l.duty(now)
		r.wait = min(r.wait, left)
		switch duties[i] {
		case watchNone:
			r.atMost = min(r.atMost, watchFor)
		case watchLook:
			r.looks = true
		case watchSit:
			r.looks, r.atMost = true, 0
		case watchRest:
			r.atMost = min(r.atMost, max(left, watchBriefly))
		case watchMissed:
			r.atMost = min(r.atMost, watchBriefly)
		}
	}
	for i, l := range lines {
		s := sqlbatch.Watched{Names: l.names, Floors: noPlace}
		switch duties[i] {
		case watchLook, watchSit, watchKeep:
			s.Look = r.looks
			for _, e := range l.ears {
				if e.heard != nil && e.placed {
					s.Floors, r.every = lowest(s.Floors, e.floors), min(r.every, e.every)
				}
			}
		}
		r.lines, r.watched = append(r.lines, l), append(r.watched, s)
	}
	return r
}

// request runs the statement, and returns what it told of each line.
func (w *watcher) request(r watchRequest) (answers []watchAnswer, err error) {
	ctx, cancel := context.WithTimeout(w.life, r.atMost+watchPatience)
	defer cancel()
	err = w.sessions.RunKeeping(ctx, w.dialect.Watch(r.watched, r.every, r.atMost), func(rows *sql.Rows) error {
		var place, seated, found int
		err := rows.Scan(&place, &seated, &found)
		answers = append(answers, watchAnswer{seated == 1, found == 1})
		return err
	})
	return answers, err
}

type watchAnswer struct{ seated, found bool }

// answered has ears rung. It reports that something was found.
func (w *watcher) answered(r watchRequest, answers []watchAnswer) (found bool) {
	w.mu.Lock()
	for i, l := range r.lines[:min(len(r.lines), len(answers))] {
		if r.watched[i].Look {
			l.answered(answers[i], monotonic())
			found = found || answers[i].found
		}
	}
	w.quiet++
	if found || r.atMost < watchFor || len(r.lines) != len(w.lines) {
		w.quiet = 0
	}
	w.mu.Unlock()
	for i, l := range r.lines {
		if r.watched[i].Look {
			l.chore.report(nil)
		}
	}
	return found
}

// deafen is the end of a request that failed. Whose consumers cannot get on does not listen
// again, so that a table that is gone, or that somebody changes, troubles one request.
func (w *watcher) deafen(r watchRequest, err error) {
	w.mu.Lock()
	for i, l := range r.lines {
		if r.watched[i].Look {
			l.deafen()
		}
	}
	w.mu.Unlock()
	for i, l := range r.lines {
		if r.watched[i].Look && l.chore.queue.classify(err) == sqlbatch.Permanent {
			l.chore.report(err)
		}
	}
}
