package embedded

import (
	"cmp"
	"database/sql/driver"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/chanq/chanq"
)

// fileDriver is SQLite's driver for one file, and the Notifier of that file: chanq finds it
// by the *sql.DB.
type fileDriver struct {
	*sqlite.Driver
	*notifier
}

// notifier wakes idle consumers of other processes that have the same file. It is a chanq.Notifier.
//
// Each plain queue has a named pipe in the directory path-notify, which idle consumers make and
// have open for reading. Who has committed writes a byte into it, or some, and whoever reads
// a byte first wakes. So one message wakes one process of any number; one that was stopped
// is passed over, since it does not read; and of one that died nothing is left behind. Where nobody listens the pipe cannot be opened for writing, which is a system call.
//
// No ring is lost. A byte is read as long as anybody has the pipe open. If nobody has when
// it is rung, or everybody leaves with bytes in it, then whoever opens it next has yet to
// look. What was read for a consumer that has left is written again.
//
// Ordered queues have other pipes: see owners.go.
//
// Where there are no named pipes (on Windows, on FAT, without the right to make them),
// SQLite is asked instead (asking.go).
//
// Its goroutines, joined by close: one for each pipe that is open (hear and readOwners), and one that asks.
type notifier struct {
	path    func() string               // of the database, as all processes know it
	connect func() (driver.Conn, error) // to ask by
	closing chan struct{}               // closed by close
	joined  sync.WaitGroup

	mu     sync.Mutex // guards what follows; held for moments
	closed bool
	lines  map[string]*line
	owners map[string]*ownerQueue
	asks   bool              // there is a goroutine that asks
	tried  time.Time         // when a pipe could last not be opened
	rung   map[string]*rings // those of each queue by this process
	named  map[string]*named // notifications of each ordered queue by this process

	listing listing // guarded by its own mutex
}

// rings are the notifications of a plain queue by this process. mu of the notifier guards them.
type rings struct {
	at   time.Time   // of the last one
	late *time.Timer // notifies for those that came too soon after that; nil: there are none
}

// line is a plain queue as this process listens for it. mu of the notifier guards it.
type line struct {
	queue   string
	pipe    *pipe // nil: SQLite is asked
	waiters []*waiter
	next    int           // whose turn it is to be woken
	left    chan struct{} // closed when no consumer listens any more
}

const (
	notifySuffix = "-notify"
	// perSleeper is how many messages one who wakes takes by itself, at the least.
	perSleeper = 16
	// mostRung is how many wake at once, for any number of messages. While more are sent, each
	// ring wakes one more: who finds nothing to claim keeps those who write from it.
	mostRung = 4
	sending  = 50 * time.Millisecond // after a ring, more may be
	// yieldFor is how long who was woken leaves the next bytes to others. It looks again
	// by itself soon after that.
	yieldFor = 5 * time.Millisecond
	// ringEvery is the least time between two rings. Each byte wakes every process that sleeps
	// far enough to see that there is nothing for it, which many senders of single messages
	// would pay for at each commit; and who was woken does not read for as long.
	ringEvery = yieldFor
	// missing is how often a pipe is looked for that somebody may have removed.
	missing = time.Second
)

func newNotifier(path string, connect func() (driver.Conn, error)) *notifier {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	real := func() string {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		return path
	}
	return &notifier{path: sync.OnceValue(real), connect: connect, closing: make(chan struct{}), lines: map[string]*line{}, owners: map[string]*ownerQueue{}, rung: map[string]*rings{}, named: map[string]*named{}}
}

// Listen implements chanq.Notifier. Notifications are received from the call on.
func (b *notifier) Listen(queue string, slots []int) (heard <-chan struct{}, stop func()) {
	if slots != nil {
		return b.listenAsOwner(queue, slots)
	}
	e := &waiter{heard: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(e.heard)
		return e.heard, func() {}
	}
	l := b.lines[queue]
	if l == nil {
		l = b.open(queue)
	}
	l.waiters = append(l.waiters, e)
	e.heard <- struct{}{}
	return e.heard, func() { b.leave(l, e) }
}

// open begins to listen for a plain queue. mu is held.
func (b *notifier) open(queue string) *line {
	l := &line{queue: queue, left: make(chan struct{})}
	b.lines[queue] = l
	if !b.openPipe(l) && !b.asks {
		b.asks = true
		b.joined.Go(b.ask)
	}
	return l
}

// openPipe has a line's pipe heard, if it can be opened. mu is held.
func (b *notifier) openPipe(l *line) bool {
	pipe, err := openPipe(b.pipeOf(l.queue), b.path())
	if err != nil {
		b.tried = time.Now()
		return false
	}
	l.pipe = pipe
	b.joined.Go(func() { b.hear(l) })
	return true
}

// fileName is that of a queue, in which there is no @.
func fileName(queue string) string { return strings.ReplaceAll(url.PathEscape(queue), "@", "%40") }

// pipeOf is the name of a queue's pipe.
func (b *notifier) pipeOf(queue string) string {
	return filepath.Join(b.path()+notifySuffix, fileName(queue))
}

// Notify implements chanq.Notifier. One that comes soon after another one is late.
func (b *notifier) Notify(n chanq.Notification) {
	if n.Slots != nil || n.Messages == 0 {
		b.notifyOwners(n.Queue, slices.Clone(n.Slots))
	}
	if n.Slots == nil {
		b.notifyConsumers(n.Queue, cmp.Or(n.Messages, mostRung*perSleeper))
	}
}

// notifyConsumers wakes consumers of a plain queue.
func (b *notifier) notifyConsumers(queue string, messages int) {
	if n := b.toWake(queue, messages); n > 0 {
		b.wakeOthers(queue, n)
	}
}

// toWake is how many to wake now.
func (b *notifier) toWake(queue string, messages int) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rung[queue]
	if r == nil {
		r = &rings{}
		b.rung[queue] = r
	}
	now := time.Now()
	since := now.Sub(r.at)
	switch {
	case r.late != nil:
		return 0
	case since < ringEvery && !b.closed:
		r.late = time.AfterFunc(ringEvery-since, func() { b.ringLate(queue, r) })
		return 0
	}
	r.at = now
	if since < sending {
		return 1
	}
	return min((messages-1)/perSleeper+1, mostRung)
}

// ringLate notifies for what came too soon, if that was not done yet.
func (b *notifier) ringLate(queue string, r *rings) {
	b.mu.Lock()
	late := r.late
	r.late, r.at = nil, time.Now()
	b.mu.Unlock()
	if late != nil {
		late.Stop()
		b.wakeOthers(queue, 1)
	}
}

// wakeOthers wakes n consumers that listen, in any process.
func (b *notifier) wakeOthers(queue string, n int) { writePipe(b.pipeOf(queue), make([]byte, n)) }

// leave ends the listening of a consumer. A notification that it has not received is passed on.
func (b *notifier) leave(l *line, e *waiter) {
	if b.left(l, e) {
		b.wakeOthers(l.queue, 1)
	}
}

// left ends the listening of a consumer, and reports whether a notification has to be passed on to another process.
func (b *notifier) left(l *line, e *waiter) (rings bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(l.waiters, e)
	if at < 0 { // deaf already
		return false
	}
	l.waiters = slices.Delete(l.waiters, at, at+1)
	rings = e.rung && len(e.heard) > 0
	if len(l.waiters) == 0 {
		b.end(l)
	} else if rings {
		l.wake(1)
		return false
	}
	return rings
}

// end stops listening for a queue. mu is held.
func (b *notifier) end(l *line) {
	close(l.left)
	delete(b.lines, l.queue)
	if l.pipe != nil {
		l.pipe.close()
	}
}

// deafen closes the channels of all waiters: notifications are not received any more. mu is held.
func (b *notifier) deafen(l *line) {
	for _, e := range l.waiters {
		close(e.heard)
	}
	l.waiters = nil
	b.end(l)
}

// wake wakes n of the waiters, in turn, and none twice.
func (l *line) wake(n int) {
	for range l.waiters {
		if n == 0 {
			return
		}
		l.next = (l.next + 1) % len(l.waiters)
		e := l.waiters[l.next]
		e.rung = true
		select {
		case e.heard <- struct{}{}:
			n--
		default: // it has yet to receive
		}
	}
}

// hear reads the pipe of a queue until all consumers have left.
func (b *notifier) hear(l *line) {
	for pipe := l.pipe; pipe != nil; {
		n, err := pipe.read(missing)
		switch {
		case err == nil:
			b.called(l, n)
			b.yield(l)
			if n := pipe.rest(); n > 0 { // no other process has taken them
				b.called(l, n)
				b.yield(l)
			}
		case isTimeout(err) && pipe.isThere():
		default:
			pipe = b.renew(l, isTimeout(err))
		}
	}
}

// called wakes waiters, or consumers of other processes if they have left.
func (b *notifier) called(l *line, n int) {
	b.mu.Lock()
	gone := len(l.waiters) == 0
	l.wake(n)
	b.mu.Unlock()
	if gone {
		b.wakeOthers(l.queue, n)
	}
}

// renew opens a pipe again that was removed, by which nothing was received lately. It returns
// nil when all consumers have left, or have to.
func (b *notifier) renew(l *line, removed bool) *pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.waiters) == 0 {
		return nil
	}
	if removed {
		if pipe, err := openPipe(b.pipeOf(l.queue), b.path()); err == nil {
			l.pipe.close()
			l.pipe = pipe
			l.wake(len(l.waiters))
			return pipe
		}
	}
	b.deafen(l)
	return nil
}

// yield leaves the pipe to other processes until a waiter has received its notification, and for yieldFor in any case.
func (b *notifier) yield(l *line) {
	timer := time.NewTicker(yieldFor)
	defer timer.Stop()
	for {
		select {
		case <-l.left:
			return
		case <-timer.C:
		}
		b.mu.Lock()
		ready := slices.ContainsFunc(l.waiters, func(e *waiter) bool { return len(e.heard) == 0 })
		b.mu.Unlock()
		if ready {
			return
		}
	}
}

// close ends the notifier. Consumers that still listen are told, and no ring is late any more.
func (b *notifier) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
		for _, l := range b.lines {
			b.deafen(l)
		}
		for _, q := range b.owners {
			b.closeOwners(q)
		}
	}
	rung, named := maps.Clone(b.rung), maps.Clone(b.named)
	b.mu.Unlock()
	for queue, r := range rung {
		b.ringLate(queue, r)
	}
	for queue, n := range named {
		b.notifyLate(queue, n)
	}
	b.joined.Wait()
}
