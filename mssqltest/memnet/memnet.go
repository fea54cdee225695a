// Package memnet is a TCP-like network inside the process. testing/synctest recognizes all its waits as durable, so
// that servers and clients that use it run in a bubble.
//
// A connection has one bounded buffer per direction, deadlines, half-close, and a reset (Close after SetLinger(0)). It
// has no latency and no packets: package netproxy adds delays and faults.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Network is the network's name, as net.Addr reports it.
const Network = "memory"

// backlog is how many connections of a listener can wait for Accept. Further Dials wait.
const backlog = 128

// bufferBytes bounds the data in progress in one direction. Further Writes wait.
const bufferBytes = 256 << 10

// Addr is the address of an end of a connection, or of a listener.
type Addr string

// Network returns the network's name.
func (Addr) Network() string { return Network }

func (a Addr) String() string { return string(a) }

var (
	numbers   atomic.Int64 // of listeners and clients
	listeners sync.Map     // address → *Listener
)

// Listener is a net.Listener. Safe for concurrent use.
type Listener struct {
	addr   Addr
	conns  chan *Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a listener with a unique address, of the form host:port.
func Listen() *Listener {
	l := &Listener{
		addr:  Addr(fmt.Sprintf("memnet%d:1433", numbers.Add(1))),
		conns: make(chan *Conn, backlog), closed: make(chan struct{}),
	}
	listeners.Store(string(l.addr), l)
	return l
}

// Accept waits for a connection, or for Close.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and resets the connections that were not accepted.
func (l *Listener) Close() error {
	l.once.Do(func() {
		listeners.Delete(string(l.addr))
		close(l.closed)
	})
	for {
		select {
		case c := <-l.conns:
			c.reset()
		default:
			return nil
		}
	}
}

// Addr returns the address for Dial.
func (l *Listener) Addr() net.Addr { return l.addr }

// Dial connects to a listener of this process.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	refused := func(err error) error {
		return &net.OpError{Op: "dial", Net: Network, Addr: Addr(address), Err: err}
	}
	found, ok := listeners.Load(address)
	if !ok {
		return nil, refused(syscall.ECONNREFUSED)
	}
	l := found.(*Listener)
	client := Addr(fmt.Sprintf("memnet%d:1", numbers.Add(1)))
	there, back := newStream(), newStream()
	near := &Conn{in: back, out: there, local: client, remote: l.addr}
	far := &Conn{in: there, out: back, local: l.addr, remote: client}
	select {
	case l.conns <- far:
	case <-l.closed:
		return nil, refused(syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, refused(ctx.Err())
	}
	select {
	case <-l.closed: // perhaps after it was emptied
		far.reset()
	default:
	}
	return near, nil
}

// Has reports whether an address belongs to a listener of this network.
func Has(address string) bool {
	_, ok := listeners.Load(address)
	return ok
}

// Dialer uses Dial, and resolves no names: it is a dialer of go-mssqldb.
type Dialer struct{}

// DialContext connects to a listener of this process.
func (Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return Dial(ctx, address)
}

// HostName prevents a look-up of the name by go-mssqldb.
func (Dialer) HostName() string { return Network }

// Conn is one end of a connection. Safe for concurrent use.
type Conn struct {
	in, out       *stream
	local, remote Addr

	mu     sync.Mutex
	resets bool // Close resets
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

// CloseWrite ends this direction: the other end reads the data in progress, then io.EOF.
func (c *Conn) CloseWrite() error {
	c.out.finish()
	return nil
}

// SetLinger with 0 makes Close a reset: data in progress is lost, and the other end gets ECONNRESET.
func (c *Conn) SetLinger(seconds int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets = seconds == 0
	return nil
}

// Close ends both directions. The other end reads the data in progress, then io.EOF; its writes fail.
func (c *Conn) Close() error {
	c.mu.Lock()
	resets := c.resets
	c.mu.Unlock()
	if resets {
		c.reset()
		return nil
	}
	c.out.finish()
	c.out.fail(nil, net.ErrClosed)
	c.in.fail(net.ErrClosed, syscall.EPIPE)
	return nil
}

func (c *Conn) reset() {
	c.out.fail(syscall.ECONNRESET, net.ErrClosed)
	c.in.fail(net.ErrClosed, syscall.ECONNRESET)
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *Conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // as net does
		return err
	}
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}

// stream is one direction.
type stream struct {
	mu              sync.Mutex
	changed         sync.Cond
	data            []byte
	finished        bool  // io.EOF follows the data
	readErr         error // of every Read from now on
	writeErr        error // of every Write from now on
	readBy, writeBy deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

// deadline is a time by which a wait ends.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (s *stream) setDeadline(d *deadline, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.timer = at, nil
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
	}
	s.changed.Broadcast()
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readErr != nil:
			return 0, s.readErr
		case s.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			s.changed.Broadcast()
			return n, nil
		case s.finished:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (written int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writeErr != nil:
			return written, s.writeErr
		case s.finished:
			return written, syscall.EPIPE
		case s.writeBy.passed():
			return written, os.ErrDeadlineExceeded
		case len(p) == 0:
			return written, nil
		case len(s.data) < bufferBytes:
			n := min(len(p), bufferBytes-len(s.data))
			s.data = append(s.data, p[:n]...)
			p, written = p[n:], written+n
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

// finish makes the reader get io.EOF after the data in progress.
func (s *stream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.changed.Broadcast()
}

// fail makes reads and writes fail with errors; nil does not change that side. The first error of a side stays.
func (s *stream) fail(read, write error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read != nil && s.readErr == nil {
		s.readErr = read
		s.data = nil
	}
	if write != nil && s.writeErr == nil {
		s.writeErr = write
	}
	for _, d := range []*deadline{&s.readBy, &s.writeBy} {
		if d.timer != nil && read != nil && write != nil {
			d.timer.Stop()
		}
	}
	s.changed.Broadcast()
}
