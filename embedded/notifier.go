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

// fileDriver is SQLite's driver for one file, and the Notifier of that file. chanq obtains it from the *sql.DB.
type fileDriver struct {
	*sqlite.Driver
	*notifier
}

// notifier wakes idle consumers of other processes that use the same file. It is a chanq.Notifier.
//
// Each plain queue has a named pipe in the directory path-notify, which idle consumers create and open for reading. A sender writes
// one or more bytes into it after a commit. The first process that reads a byte wakes a consumer, so one message wakes only one
// process. A stopped process does not read, and a process that died leaves nothing behind. If no process listens, the pipe cannot be
// opened for writing, and a notification costs one system call.
//
// No notification is lost. A byte is not lost as long as a process has the pipe open. If no process has it open during a
// notification, or all processes close it with bytes in it, the next process that opens it polls first. A byte that was read for a
// consumer that has stopped listening is written again.
//
// Ordered queues have other pipes: see owners.go.
//
// If there are no named pipes (on Windows, on FAT, without the permission to create them),
// SQLite is polled instead (polling.go).
//
// Its goroutines, joined by close: one for each pipe that is open (readPipe and readOwners), and one that polls.
type notifier struct {
	path    func() string               // of the database, the same in all processes
	connect func() (driver.Conn, error) // for polling
	closing chan struct{}               // closed by close
	joined  sync.WaitGroup

	mu       sync.Mutex // guards the fields below; held briefly
	closed   bool
	plain    map[string]*plainQueue
	owners   map[string]*ownerQueue
	polls    bool               // there is a goroutine that polls
	tried    time.Time          // when opening a pipe last failed
	notified map[string]*recent // notifications of each plain queue by this process
	named    map[string]*named  // notifications of each ordered queue by this process

	listing listing // guarded by its own mutex
}

// recent has this process's notifications of a plain queue. mu of the notifier guards them.
type recent struct {
	at   time.Time   // of the last one
	late *time.Timer // sends a notification for those that came too soon after at; nil: there are none
}

// plainQueue is a plain queue for which this process listens. mu of the notifier guards it.
type plainQueue struct {
	queue   string
	pipe    *pipe // nil: SQLite is polled
	waiters []*waiter
	next    int           // the waiter to wake next
	left    chan struct{} // closed when no consumer listens
}

const (
	notifySuffix = "-notify"
	// perConsumer is the least number of messages that a woken consumer claims alone.
	perConsumer = 16
	// mostWoken is the most consumers that one notification wakes, for any number of messages. While more messages are sent, each
	// notification wakes one more consumer. More would be harmful, because a consumer that finds nothing to claim delays the writers.
	mostWoken = 4
	sending   = 50 * time.Millisecond // how long after a notification more are expected
	// yieldFor is how long a woken process leaves the next bytes to other processes. It polls again on its own soon after that.
	yieldFor = 5 * time.Millisecond
	// notifyEvery is the least time between two notifications. Each byte briefly wakes every waiting process, which would delay each
	// commit of many senders of single messages. A woken process does not read for that long.
	notifyEvery = yieldFor
	// missing is how often a process checks whether its pipe was removed.
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
	return &notifier{path: sync.OnceValue(real), connect: connect, closing: make(chan struct{}), plain: map[string]*plainQueue{}, owners: map[string]*ownerQueue{}, notified: map[string]*recent{}, named: map[string]*named{}}
}

// Listen implements chanq.Notifier. Notifications are received as soon as it is called.
func (b *notifier) Listen(queue string, slots []int) (woken <-chan struct{}, stop func()) {
	if slots != nil {
		return b.listenAsOwner(queue, slots)
	}
	w := &waiter{woken: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(w.woken)
		return w.woken, func() {}
	}
	l := b.plain[queue]
	if l == nil {
		l = b.open(queue)
	}
	l.waiters = append(l.waiters, w)
	w.woken <- struct{}{}
	return w.woken, func() { b.leave(l, w) }
}

// open begins to listen for a plain queue. mu is held.
func (b *notifier) open(queue string) *plainQueue {
	l := &plainQueue{queue: queue, left: make(chan struct{})}
	b.plain[queue] = l
	if !b.openPipe(l) && !b.polls {
		b.polls = true
		b.joined.Go(b.poll)
	}
	return l
}

// openPipe opens the pipe of a queue and starts its reader, if it can be opened. mu is held.
func (b *notifier) openPipe(l *plainQueue) bool {
	pipe, err := openPipe(b.pipeOf(l.queue), b.path())
	if err != nil {
		b.tried = time.Now()
		return false
	}
	l.pipe = pipe
	b.joined.Go(func() { b.readPipe(l) })
	return true
}

// fileName returns the file name of a queue, without @.
func fileName(queue string) string { return strings.ReplaceAll(url.PathEscape(queue), "@", "%40") }

// pipeOf returns the name of a queue's pipe.
func (b *notifier) pipeOf(queue string) string {
	return filepath.Join(b.path()+notifySuffix, fileName(queue))
}

// Notify implements chanq.Notifier. A call soon after another one is delayed.
func (b *notifier) Notify(n chanq.Notification) {
	if n.Slots != nil || n.Messages == 0 {
		b.notifyOwners(n.Queue, slices.Clone(n.Slots))
	}
	if n.Slots == nil {
		b.notifyConsumers(n.Queue, cmp.Or(n.Messages, mostWoken*perConsumer))
	}
}

// notifyConsumers wakes consumers of a plain queue.
func (b *notifier) notifyConsumers(queue string, messages int) {
	if n := b.toWake(queue, messages); n > 0 {
		b.wakeOthers(queue, n)
	}
}

// toWake returns the number of consumers to wake now.
func (b *notifier) toWake(queue string, messages int) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.notified[queue]
	if r == nil {
		r = &recent{}
		b.notified[queue] = r
	}
	now := time.Now()
	since := now.Sub(r.at)
	switch {
	case r.late != nil:
		return 0
	case since < notifyEvery && !b.closed:
		r.late = time.AfterFunc(notifyEvery-since, func() { b.notifyDelayed(queue, r) })
		return 0
	}
	r.at = now
	if since < sending {
		return 1
	}
	return min((messages-1)/perConsumer+1, mostWoken)
}

// notifyDelayed sends the delayed notification, if there is one.
func (b *notifier) notifyDelayed(queue string, r *recent) {
	b.mu.Lock()
	late := r.late
	r.late, r.at = nil, time.Now()
	b.mu.Unlock()
	if late != nil {
		late.Stop()
		b.wakeOthers(queue, 1)
	}
}

// wakeOthers wakes n listening consumers, in any process.
func (b *notifier) wakeOthers(queue string, n int) { writePipe(b.pipeOf(queue), make([]byte, n)) }

// leave stops listening for a consumer. It passes on a notification that the consumer has not received.
func (b *notifier) leave(l *plainQueue, w *waiter) {
	if b.left(l, w) {
		b.wakeOthers(l.queue, 1)
	}
}

// left stops listening for a consumer, and reports whether a notification has to be passed on to another process.
func (b *notifier) left(l *plainQueue, w *waiter) (recent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(l.waiters, w)
	if at < 0 { // its channel is already closed
		return false
	}
	l.waiters = slices.Delete(l.waiters, at, at+1)
	recent = w.notified && len(w.woken) > 0
	if len(l.waiters) == 0 {
		b.end(l)
	} else if recent {
		l.wake(1)
		return false
	}
	return recent
}

// end stops listening for a queue. mu is held.
func (b *notifier) end(l *plainQueue) {
	close(l.left)
	delete(b.plain, l.queue)
	if l.pipe != nil {
		l.pipe.close()
	}
}

// closeAll closes the channels of all waiters: notifications are no longer received. mu is held.
func (b *notifier) closeAll(l *plainQueue) {
	for _, w := range l.waiters {
		close(w.woken)
	}
	l.waiters = nil
	b.end(l)
}

// wake wakes n of the waiters in turn, none of them twice.
func (l *plainQueue) wake(n int) {
	for range l.waiters {
		if n == 0 {
			return
		}
		l.next = (l.next + 1) % len(l.waiters)
		w := l.waiters[l.next]
		w.notified = true
		select {
		case w.woken <- struct{}{}:
			n--
		default: // it has an unreceived value
		}
	}
}

// readPipe reads the pipe of a queue until all consumers have left.
func (b *notifier) readPipe(l *plainQueue) {
	for pipe := l.pipe; pipe != nil; {
		n, err := pipe.read(missing)
		switch {
		case err == nil:
			b.received(l, n)
			b.yield(l)
			if n := pipe.rest(); n > 0 { // no other process has read these bytes
				b.received(l, n)
				b.yield(l)
			}
		case isTimeout(err) && pipe.isThere():
		default:
			pipe = b.renew(l, isTimeout(err))
		}
	}
}

// received wakes waiters, or consumers of other processes if the waiters have left.
func (b *notifier) received(l *plainQueue, n int) {
	b.mu.Lock()
	gone := len(l.waiters) == 0
	l.wake(n)
	b.mu.Unlock()
	if gone {
		b.wakeOthers(l.queue, n)
	}
}

// renew reopens a removed pipe from which nothing was read recently. It returns nil when all consumers have left or have
// to leave.
func (b *notifier) renew(l *plainQueue, removed bool) *pipe {
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
	b.closeAll(l)
	return nil
}

// yield leaves the pipe to other processes until a waiter has received its notification, and for at least yieldFor.
func (b *notifier) yield(l *plainQueue) {
	timer := time.NewTicker(yieldFor)
	defer timer.Stop()
	for {
		select {
		case <-l.left:
			return
		case <-timer.C:
		}
		b.mu.Lock()
		ready := slices.ContainsFunc(l.waiters, func(w *waiter) bool { return len(w.woken) == 0 })
		b.mu.Unlock()
		if ready {
			return
		}
	}
}

// close ends the notifier. It closes the channels of listening consumers, and sends delayed notifications.
func (b *notifier) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
		for _, l := range b.plain {
			b.closeAll(l)
		}
		for _, q := range b.owners {
			b.closeOwners(q)
		}
	}
	notified, named := maps.Clone(b.notified), maps.Clone(b.named)
	b.mu.Unlock()
	for queue, r := range notified {
		b.notifyDelayed(queue, r)
	}
	for queue, n := range named {
		b.notifyLate(queue, n)
	}
	b.joined.Wait()
}
