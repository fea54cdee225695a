package embedded

import (
	"bytes"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/notify"
)

// Ordered queues. Each listening process has its own pipe, queue@random. A sender writes the slots of a notification to all
// pipes, and each reader wakes the consumers that own one of the slots.
//
// No notification is lost. Consumers poll after their pipe has its name, and senders read the list of names again whenever
// the directory has changed. A pipe that was full during a write has more data than one read takes, which wakes every
// consumer.

// ownerQueue is an ordered queue for which this process listens. mu of the notifier guards it.
type ownerQueue struct {
	queue   string
	pipe    *pipe // nil: SQLite is polled
	waiters []*waiter
	rest    []byte // the incomplete record that was read last; only the reading goroutine uses it
}

// waiter is a consumer that listens.
type waiter struct {
	woken    chan struct{} // of capacity 1
	slots    []int         // of an ordered queue, ascending
	notified bool          // of a plain queue: the value in woken is a notification, not the first value
}

// named has this process's notifications of an ordered queue. mu of the notifier guards it.
type named struct {
	at    time.Time   // of the last one
	late  *time.Timer // sends notifications that came too soon after at; nil: there are none
	slots []int       // of these notifications; nil: any
}

const (
	mostRecord = 511 // bytes: a write of this size is atomic on every system
	readBuffer = 4 << 10
	// coarse is the most by which the modification time of a directory may be too early.
	coarse = 2 * time.Second
)

// listenAsOwner is Listen for an ordered queue.
func (b *notifier) listenAsOwner(queue string, slots []int) (woken <-chan struct{}, stop func()) {
	w := &waiter{woken: make(chan struct{}, 1), slots: slices.Clone(slots)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(w.woken)
		return w.woken, func() {}
	}
	q := b.owners[queue]
	if q == nil {
		q = &ownerQueue{queue: queue}
		b.owners[queue] = q
		if !b.openOwners(q) && !b.polls {
			b.polls = true
			b.joined.Go(b.poll)
		}
	}
	q.waiters = append(q.waiters, w)
	w.woken <- struct{}{}
	return w.woken, func() { b.leaveOwners(q, w) }
}

// openOwners opens the pipe of this process and starts its reader. mu is held.
func (b *notifier) openOwners(q *ownerQueue) bool {
	pipe, err := b.newPipe(q.queue)
	if err != nil {
		b.tried = time.Now()
		return false
	}
	q.pipe = pipe
	b.joined.Go(func() { b.readOwners(q) })
	return true
}

func (b *notifier) newPipe(queue string) (*pipe, error) {
	return openOwnPipe(b.pipeOf(queue)+"@"+rand.Text(), b.path())
}

// leaveOwners stops listening for a consumer. An unreceived notification is for no other consumer.
func (b *notifier) leaveOwners(q *ownerQueue, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(q.waiters, w)
	if at < 0 {
		return
	}
	if q.waiters = slices.Delete(q.waiters, at, at+1); len(q.waiters) == 0 {
		b.closeOwners(q)
	}
}

// closeOwners closes the channels of all consumers, and the pipe. mu is held.
func (b *notifier) closeOwners(q *ownerQueue) {
	for _, w := range q.waiters {
		close(w.woken)
	}
	q.waiters = nil
	if b.owners[q.queue] == q {
		delete(b.owners, q.queue)
	}
	if q.pipe != nil {
		q.pipe.remove()
	}
}

// wake wakes the consumers that own one of the slots; nil: all. mu of the notifier is held.
func (q *ownerQueue) wake(slots []int) {
	for _, w := range q.waiters {
		if notify.Concerns(w.slots, slots) {
			select {
			case w.woken <- struct{}{}:
			default: // it has an unreceived value
			}
		}
	}
}

// readOwners reads the pipe of an ordered queue until all consumers have left.
func (b *notifier) readOwners(q *ownerQueue) {
	buffer := make([]byte, readBuffer)
	for pipe := q.pipe; pipe != nil; {
		n, err := pipe.readAll(buffer, missing)
		switch {
		case err == nil:
			b.mu.Lock()
			q.received(buffer[:n], n == len(buffer))
			b.mu.Unlock()
		case isTimeout(err) && pipe.isThere():
		default:
			pipe = b.renewOwners(q, isTimeout(err))
		}
	}
}

// received processes records. If more is set, records may be missing. mu of the notifier is held.
func (q *ownerQueue) received(data []byte, more bool) {
	if more {
		q.wake(nil)
	}
	data = append(q.rest, data...)
	for {
		record, rest, ends := bytes.Cut(data, []byte{'\n'})
		if !ends {
			break
		}
		q.wake(notify.Parse(string(record)))
		data = rest
	}
	if len(data) > mostRecord { // not written by chanq
		q.wake(nil)
		data = nil
	}
	q.rest = slices.Clone(data)
}

// renewOwners replaces a removed pipe from which nothing was read recently. It returns nil when all consumers have left or
// have to leave.
func (b *notifier) renewOwners(q *ownerQueue, removed bool) *pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(q.waiters) == 0 {
		return nil
	}
	if removed {
		if pipe, err := b.newPipe(q.queue); err == nil {
			q.pipe.close()
			q.pipe, q.rest = pipe, nil
			q.wake(nil)
			return pipe
		}
	}
	b.closeOwners(q)
	return nil
}

// notifyOwners wakes the consumers of an ordered queue that own one of the slots; nil: all.
func (b *notifier) notifyOwners(queue string, slots []int) {
	b.mu.Lock()
	n := b.named[queue]
	if n == nil {
		n = &named{}
		b.named[queue] = n
	}
	since := time.Since(n.at)
	switch {
	case n.late != nil:
		n.slots = notify.Union(n.slots, slots)
	case since < notifyEvery && !b.closed:
		n.slots = slots
		n.late = time.AfterFunc(notifyEvery-since, func() { b.notifyLate(queue, n) })
	default:
		n.at = time.Now()
		b.mu.Unlock()
		b.writeOwners(queue, slots)
		return
	}
	b.mu.Unlock()
}

// notifyLate sends the delayed notifications, if that was not done yet.
func (b *notifier) notifyLate(queue string, n *named) {
	b.mu.Lock()
	late, slots := n.late, n.slots
	n.late, n.slots, n.at = nil, nil, time.Now()
	b.mu.Unlock()
	if late != nil {
		late.Stop()
		b.writeOwners(queue, slots)
	}
}

// writeOwners writes a record to each pipe of an ordered queue. It removes the pipe of a process that has died.
func (b *notifier) writeOwners(queue string, slots []int) {
	folder, record := b.path()+notifySuffix, []byte(notify.Format(slots, mostRecord-1)+"\n")
	prefix := fileName(queue) + "@"
	for _, name := range b.listing.of(folder) {
		if strings.HasPrefix(name, prefix) {
			if pipe := filepath.Join(folder, name); writePipe(pipe, record) {
				removeUnused(pipe)
			}
		}
	}
}

// listing caches the names of the pipes of ordered queues in a directory, as of its last change.
type listing struct {
	mu      sync.Mutex // guards the fields below; held while the directory is read
	changed time.Time
	sure    bool // changed is long before the names were read, so every later change has another time
	names   []string
}

// of returns the names. It costs one system call while the directory does not change.
func (l *listing) of(folder string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	info, err := os.Lstat(folder)
	if err != nil || !info.IsDir() {
		l.sure = false
		return nil
	}
	if l.sure && info.ModTime().Equal(l.changed) {
		return l.names
	}
	l.changed, l.sure = info.ModTime(), began.Sub(info.ModTime()) > coarse
	files, err := os.ReadDir(folder)
	if err != nil {
		l.sure = false
	}
	l.names = nil
	for _, file := range files {
		if file.Type() == fs.ModeNamedPipe && strings.Contains(file.Name(), "@") && !strings.HasPrefix(file.Name(), ".") {
			l.names = append(l.names, file.Name())
		}
	}
	return l.names
}

var _ chanq.Notifier = (*notifier)(nil)
