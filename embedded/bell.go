package embedded

import (
	"database/sql/driver"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// fileDriver is SQLite's driver for one file, and the Bell of that file: chanq finds it
// by the *sql.DB.
type fileDriver struct {
	*sqlite.Driver
	*bell
}

// bell wakes idle consumers of other processes that have the same file. It is a chanq.Bell.
//
// Each queue has a named pipe in the directory path-bell, which idle consumers make and
// have open for reading. Who has committed writes a byte into it for each message, and
// whoever reads that first wakes. So one message wakes one process of any number; one that
// was stopped is passed over, since it does not read; and of one that died nothing is left
// behind. Where nobody listens the pipe cannot be opened for writing, which is a system call.
//
// No ring is lost. A byte is read as long as anybody has the pipe open. If nobody has when
// it is rung, or everybody leaves with bytes in it, then whoever opens it next has yet to
// look. What was read for a consumer that has left is written again.
//
// Where there are no named pipes (on Windows, on FAT, without the right to make them),
// SQLite is asked instead (asking.go).
//
// Its goroutines, joined by close: one for each pipe that is open (hear), and one that asks.
type bell struct {
	path    func() string               // of the database, as all processes know it
	connect func() (driver.Conn, error) // to ask by
	closing chan struct{}               // closed by close
	joined  sync.WaitGroup

	mu     sync.Mutex // guards what follows; held for moments
	closed bool
	lines  map[string]*line
	asks   bool // there is a goroutine that asks
}

// line is a queue as this process hears it. mu of the bell guards it.
type line struct {
	queue string
	pipe  *pipe // nil: SQLite is asked
	ears  []*ear
	next  int           // whose turn it is to be woken
	left  chan struct{} // closed when nobody listens any more
}

// ear is one consumer that listens.
type ear struct {
	bell chan struct{} // of capacity 1; its first value is no ring
	rung bool
}

const (
	bellSuffix = "-bell"
	// mostRung is how many are woken at once. More do not write to one file any sooner.
	mostRung = 8
	// yield is for how long who was woken leaves the next bytes to others. It looks again
	// by itself soon after that.
	yield = 5 * time.Millisecond
	// missing is how often a pipe is looked for that somebody may have removed.
	missing = time.Second
)

func newBell(path string, connect func() (driver.Conn, error)) *bell {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	real := func() string {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		return path
	}
	return &bell{path: sync.OnceValue(real), connect: connect, closing: make(chan struct{}), lines: map[string]*line{}}
}

// Listen implements chanq.Bell. It hears at once.
func (b *bell) Listen(queue string) (heard <-chan struct{}, stop func()) {
	e := &ear{bell: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		close(e.bell)
		return e.bell, func() {}
	}
	l := b.lines[queue]
	if l == nil {
		l = b.open(queue)
	}
	l.ears = append(l.ears, e)
	e.bell <- struct{}{}
	return e.bell, func() { b.leave(l, e) }
}

// open begins to hear a queue. mu is held.
func (b *bell) open(queue string) *line {
	l := &line{queue: queue, left: make(chan struct{})}
	b.lines[queue] = l
	pipe, err := openPipe(b.pipeOf(queue), b.path())
	if err == nil {
		l.pipe = pipe
		b.joined.Go(func() { b.hear(l) })
	} else if !b.asks {
		b.asks = true
		b.joined.Go(b.ask)
	}
	return l
}

// pipeOf is the name of a queue's pipe.
func (b *bell) pipeOf(queue string) string {
	return filepath.Join(b.path()+bellSuffix, url.PathEscape(queue))
}

// Ring implements chanq.Bell.
func (b *bell) Ring(queue string) { b.RingFor(queue, 1) }

// RingFor is Ring for a number of messages.
func (b *bell) RingFor(queue string, messages int) {
	ringPipe(b.pipeOf(queue), min(messages, mostRung))
}

// leave ends an ear. A ring that it has not heard is another's.
func (b *bell) leave(l *line, e *ear) {
	if b.left(l, e) {
		b.RingFor(l.queue, 1)
	}
}

// left ends an ear, and reports whether a ring has to be passed on.
func (b *bell) left(l *line, e *ear) (rings bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(l.ears, e)
	if at < 0 { // deaf already
		return false
	}
	l.ears = slices.Delete(l.ears, at, at+1)
	rings = e.rung && len(e.bell) > 0
	if len(l.ears) == 0 {
		b.end(l)
	} else if rings {
		l.wake(1)
		return false
	}
	return rings
}

// end stops hearing a queue. mu is held.
func (b *bell) end(l *line) {
	close(l.left)
	delete(b.lines, l.queue)
	if l.pipe != nil {
		l.pipe.close()
	}
}

// deafen tells all ears that nothing is heard any more. mu is held.
func (b *bell) deafen(l *line) {
	for _, e := range l.ears {
		close(e.bell)
	}
	l.ears = nil
	b.end(l)
}

// wake rings n of the ears, in turn, and none twice.
func (l *line) wake(n int) {
	for range l.ears {
		if n == 0 {
			return
		}
		l.next = (l.next + 1) % len(l.ears)
		select {
		case l.ears[l.next].bell <- struct{}{}:
			l.ears[l.next].rung = true
			n--
		default:
		}
	}
}

// hear reads the pipe of a queue until everybody has left.
func (b *bell) hear(l *line) {
	for pipe := l.pipe; pipe != nil; {
		n, err := pipe.read(missing)
		switch {
		case err == nil:
			b.called(l, n)
			l.pause(yield)
			if n := pipe.rest(); n > 0 { // nobody else wanted them
				b.called(l, n)
			}
		case isTimeout(err) && pipe.isThere():
		default:
			pipe = b.renew(l, isTimeout(err))
		}
	}
}

// called wakes ears, or whoever else listens where they have left.
func (b *bell) called(l *line, messages int) {
	b.mu.Lock()
	gone := len(l.ears) == 0
	l.wake(messages)
	b.mu.Unlock()
	if gone {
		b.RingFor(l.queue, messages)
	}
}

// renew opens a pipe again that was removed, so that nothing was heard of late. It returns
// nil when everybody has left, or has to.
func (b *bell) renew(l *line, removed bool) *pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.ears) == 0 {
		return nil
	}
	if removed {
		if pipe, err := openPipe(b.pipeOf(l.queue), b.path()); err == nil {
			l.pipe.close()
			l.pipe = pipe
			l.wake(len(l.ears))
			return pipe
		}
	}
	b.deafen(l)
	return nil
}

// pause waits for d, or until everybody has left.
func (l *line) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.left:
	case <-timer.C:
	}
}

// close ends the bell. Consumers that still listen are told.
func (b *bell) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
		for _, l := range b.lines {
			b.deafen(l)
		}
	}
	b.mu.Unlock()
	b.joined.Wait()
}
