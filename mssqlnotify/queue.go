package mssqlnotify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

const (
	// restFor is the pause after a find, in units of Config.Every, which allows time for a claim. It doubles up to mostRest
	// while the same message is found.
	restFor  = 4
	mostRest = 250 * time.Millisecond

	// unused is how long a queue stays in the text of the statement after its last consumer has stopped listening. Consumers
	// start and stop listening often, and each text needs a plan.
	unused = time.Minute
)

// retries are the pauses before the next attempt for a queue that failed, or whose locks other sessions hold.
var retries = []time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second, 10 * time.Second}

// queue is a queue for which this process waits. mu of the Notifier guards all fields.
type queue struct {
	name    string
	names   sqlbatch.Names
	waiters []chan struct{} // one per consumer that listens, of capacity 1
	last    int             // the waiter that was woken last
	left    time.Time       // when the last waiter left

	live     bool      // the last request held a lock: the waiters rely on being woken
	named    bool      // the queue is in the text for all queues
	next     time.Time // the queue is not read earlier
	failures int       // consecutive attempts without a lock
	err      error     // of the last request for it

	head  int64 // where the next request begins; 0: now
	found int64 // the head of the last find; 0: the last request found nothing
	rest  time.Duration
}

// Listen implements chanq.Notifier, for plain queues. It returns immediately. The first value comes when a request
// holds a lock of the queue.
func (b *Notifier) Listen(name string, slots []int) (<-chan struct{}, func()) {
	w := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(w)
		return w, func() {}
	}
	q := b.queueOf(name)
	q.waiters = append(q.waiters, w)
	switch soon := time.Now().Add(retries[0]); {
	case q.live:
		notify(w)
	case q.err == nil && q.next.After(soon):
		q.failures, q.next = 0, soon
	}
	notify(b.work)
	if !b.runs {
		b.runs = true
		b.joined.Go(b.run)
	}
	return w, func() { b.leave(q, w) }
}

// queueOf returns the queue with a name. mu is held.
func (b *Notifier) queueOf(name string) *queue {
	at, found := slices.BinarySearchFunc(b.queues, name, func(q *queue, name string) int { return strings.Compare(q.name, name) })
	if !found {
		dot := strings.LastIndexByte(name, '.') // the name of a queue contains no dot
		names := sqlbatch.Names{Schema: name[:max(dot, 0)], Queue: name[dot+1:]}
		b.queues = slices.Insert(b.queues, at, &queue{name: name, names: names})
	}
	return b.queues[at]
}

// leave stops listening for one consumer. A value that it has not received is passed on to another consumer.
func (b *Notifier) leave(q *queue, w chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(q.waiters, w)
	if at < 0 {
		return
	}
	q.waiters = slices.Delete(q.waiters, at, at+1)
	if len(w) > 0 {
		q.wake()
	}
	if len(q.waiters) == 0 {
		q.live, q.left = false, time.Now()
		notify(b.work)
	}
}

// request is the work of one statement.
type request struct {
	queues  []*queue // as watched
	watched []sqlbatch.Watched
	atMost  time.Duration
}

func (r *request) add(q *queue, look bool) {
	r.queues = append(r.queues, q)
	r.watched = append(r.watched, sqlbatch.Watched{Names: q.names, Look: look, Head: q.head})
}

// plan returns the next request: one read of a queue that is not live yet, or a request for all live queues. If the request
// is empty, there is nothing to do for the time wait. listens reports whether there is a waiter.
func (b *Notifier) plan(now time.Time) (r request, listens bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues = slices.DeleteFunc(b.queues, func(q *queue) bool { return len(q.waiters) == 0 && now.Sub(q.left) >= unused })
	b.report()
	named := 0
	for _, q := range b.queues {
		if q.named {
			named++
		}
	}
	r.atMost, wait = longest, time.Hour
	looks := false
	for _, q := range b.queues {
		left, look := q.next.Sub(now), false
		switch {
		case len(q.waiters) == 0:
			left = q.left.Add(unused).Sub(now)
		case left > 0:
			listens = true
			r.atMost = min(r.atMost, max(left, b.every))
		case q.live:
			look, looks, listens = true, true, true
		case q.named || named < sqlbatch.MostWatched:
			r = request{}
			r.add(q, true)
			return r, true, 0
		default: // there are too many queues
			listens = true
			q.retry(now)
			left = q.next.Sub(now)
		}
		if left > 0 {
			wait = min(wait, left)
		}
		if q.named {
			r.add(q, look)
		}
	}
	if !looks {
		return request{}, listens, wait
	}
	return r, true, 0
}

// answered stores the result of a request, and wakes consumers.
func (b *Notifier) answered(r request, answers []answer, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range r.queues {
		if r.watched[i].Look {
			q.answered(answers[i], b.every, now)
		}
	}
	b.report()
}

func (q *queue) answered(a answer, every time.Duration, now time.Time) {
	q.err = nil
	if !a.locked {
		if q.live { // another process has taken the lock between two requests
			q.closeAll()
		}
		q.retry(now)
		return
	}
	if !q.live {
		for _, w := range q.waiters {
			notify(w) // the waiters are woken from now on
		}
	}
	q.live, q.named, q.failures, q.head = len(q.waiters) > 0, true, 0, a.head
	switch {
	case !a.found:
		q.found = 0
		return
	case a.head == q.found:
		q.rest = min(2*q.rest, mostRest)
	default:
		q.found, q.rest = a.head, min(restFor*every, mostRest)
	}
	q.next = now.Add(q.rest)
	q.wake()
}

// failed makes consumers poll after a failed request: those of its queues if the error belongs to a queue, otherwise all. It
// reports whether the error belongs to a queue. The queues are then tried one by one, and no other pause is needed.
func (b *Notifier) failed(r request, err error, now time.Time) (ofQueue bool) {
	ofQueue = isOfQueue(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		if at := slices.Index(r.queues, q); len(q.waiters) == 0 || ofQueue && (at < 0 || !r.watched[at].Look) {
			continue
		}
		q.closeAll()
		q.err = fmt.Errorf("mssqlnotify: %s: %w", q.name, err)
		if ofQueue {
			q.named = false
			if len(r.queues) == 1 {
				q.retry(now)
			}
		}
	}
	b.report()
	return ofQueue
}

// report sets the Status to the error of the first queue that has one. mu is held.
func (b *Notifier) report() {
	for _, q := range b.queues {
		if q.err != nil {
			b.status.Report(q.err)
			return
		}
	}
	b.status.Report(nil)
}

// retry schedules the next attempt for the queue after a pause.
func (q *queue) retry(now time.Time) {
	pause := retries[min(q.failures, len(retries)-1)]
	q.failures++
	q.next = now.Add(pause*3/4 + rand.N(pause/2))
}

// wake notifies the next waiter whose channel is empty.
func (q *queue) wake() {
	for range q.waiters {
		q.last = (q.last + 1) % len(q.waiters)
		if notify(q.waiters[q.last]) {
			return
		}
	}
}

// closeAll closes the channels of all waiters, which then poll.
func (q *queue) closeAll() {
	for _, w := range q.waiters {
		close(w)
	}
	if len(q.waiters) > 0 {
		q.left = time.Now()
	}
	q.waiters, q.live = nil, false
}

// notify sends a value to a channel of capacity 1. It returns false if the channel is full.
func notify(ch chan struct{}) bool {
	select {
	case ch <- struct{}{}:
		return true
	default:
		return false
	}
}
