package tds

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// maxQueued is how many messages a client may send ahead of their answers.
const maxQueued = 16

// Conn is one connection of a client.
//
// Goroutines: one serves (started by the Server, which joins it): it greets, runs the requests, and only it writes to
// the socket. One reads (started by the first after LOGIN7 and joined by it): it assembles messages, so that an
// attention or the end of the connection is seen while a request runs. Each ends the other by the context and by
// closing the socket.
type Conn struct {
	server *Server
	id     uint16
	socket net.Conn
	ctx    context.Context // ends with the connection, cause ErrConnectionGone
	cancel context.CancelCauseFunc
	login  atomic.Pointer[Login]
	calls  chan *call // from the reading to the serving goroutine

	in  *messageReader // used by the serving goroutine until the reading one starts
	out *messageWriter // used by the serving goroutine
}

func newConn(s *Server, id uint16, socket net.Conn) *Conn {
	c := &Conn{server: s, id: id, socket: socket, calls: make(chan *call, maxQueued)}
	c.ctx, c.cancel = context.WithCancelCause(context.WithValue(s.ctx, connKey{}, c))
	c.in = newMessageReader(socket, maxLoginBytes)
	// The smallest packet until a size is agreed: the client might have requested it.
	c.out = &messageWriter{w: socket, packetType: packetReply, spid: id, maxPacket: minPacketBytes}
	return c
}

type connKey struct{}

// ConnOf returns the connection whose request runs with ctx, or nil if there is none. It is for functions that a
// Handler calls, which have no other access to the connection.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// ID returns the connection's number, as in the packets' headers.
func (c *Conn) ID() int { return int(c.id) }

// Login returns the login data of the client; zero before the login.
func (c *Conn) Login() Login {
	if l := c.login.Load(); l != nil {
		return *l
	}
	return Login{}
}

// Kill resets the connection: the client sees RST, and the context of a running request ends.
func (c *Conn) Kill() {
	if resets, ok := c.socket.(interface{ SetLinger(int) error }); ok {
		_ = resets.SetLinger(0)
	}
	c.cancel(ErrConnectionGone)
	_ = c.socket.Close()
}

// serve runs the connection from its first byte to its last.
func (c *Conn) serve() {
	reading := make(chan struct{})
	close(reading) // no reading goroutine yet
	defer func() {
		c.cancel(ErrConnectionGone)
		_ = c.socket.Close()
		<-reading
	}()
	asked, err := c.greet()
	if err != nil {
		c.log("login", err)
		return
	}
	reading = make(chan struct{})
	go func() {
		defer close(reading)
		c.read()
	}()
	session, err := c.admit(asked)
	if err != nil {
		c.log("login", err)
		return
	}
	defer session.Close()
	for {
		select {
		case call := <-c.calls:
			err := c.answer(session, call)
			call.cancel(nil)
			if err != nil {
				c.log("request", err)
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Conn) log(doing string, err error) {
	c.server.options.Log.Info("connection ends", "id", c.id, "doing", doing, "error", err)
}

// read turns the client's messages into calls until the connection ends or the client sends invalid TDS.
func (c *Conn) read() {
	var open []*call // calls that might not be closed, oldest first
	for {
		msg, err := c.in.read()
		for len(open) > 0 && open[0].state.Load() == callClosed {
			open = open[1:]
		}
		switch {
		case err != nil:
		case msg.packetType == packetAttention:
			if !interruptFirst(open) {
				err = c.queue(&call{attention: true})
			}
		default:
			var next *call
			if next, err = newCall(msg); err == nil {
				open = append(open, next)
				err = c.queue(next)
			}
		}
		if err != nil {
			c.endReading(err, len(open) > 0)
			return
		}
	}
}

// interruptFirst interrupts the call whose answer the client is waiting for,
// if there is one.
func interruptFirst(open []*call) bool {
	for _, call := range open {
		if call.interrupt() {
			return true
		}
	}
	return false
}

// endReading ends the connection. If the client is idle, it first sends it the error in its message.
func (c *Conn) endReading(err error, busy bool) {
	var bad malformed
	if errors.As(err, &bad) && !busy {
		refusal := &sqltype.Error{Number: 4002, State: 1, Class: fatalClass, Line: 1,
			Message: "The incoming tabular data stream (TDS) protocol stream is incorrect. " + bad.what}
		if c.queue(&call{refused: refusal}) == nil {
			return // the serving goroutine closes the connection
		}
	}
	c.cancel(ErrConnectionGone)
}

// queue passes a call to the serving goroutine.
func (c *Conn) queue(next *call) error {
	next.ctx, next.cancel = context.WithCancelCause(c.ctx)
	select {
	case c.calls <- next:
		return nil
	default:
		next.cancel(nil)
		return malformedf("more than %d messages ahead of their answers", maxQueued)
	}
}

// newCall decodes a message.
func newCall(msg message) (*call, error) {
	next := &call{wireBytes: msg.wireBytes}
	switch msg.packetType {
	case packetBatch, packetRPC, packetTransaction, packetBulkLoad:
	default:
		return nil, malformedf("message of type %d", msg.packetType)
	}
	switch {
	case msg.status&statusIgnore != 0:
		next.ignored = true
	case msg.packetType == packetBulkLoad:
		next.refused = errBulkLoad()
	default:
		var err error
		next.requests, err = parseRequests(msg)
		if err != nil && !errors.As(err, &next.refused) {
			return nil, err
		}
	}
	return next, nil
}

// pause waits for the delay of an Action.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
