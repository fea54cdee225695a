package tds

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Options configures a Server. The zero Options serves without encryption and without faults. The hooks are called by
// the connections' goroutines, several at once, and may block.
type Options struct {
	// ServerName appears in messages. Default: "mssqltest".
	ServerName string
	// TLS has the certificate for encrypting connections, if the client supports it. Default: none. Then clients that
	// insist on encryption are refused by the answer to their PRELOGIN.
	TLS *tls.Config
	// MaxMessageBytes bounds one message of a client; a larger one ends the connection. Default: 256 MiB.
	MaxMessageBytes int
	// Before is called before Session.Run. Default: nothing happens.
	Before func(*Conn, *Request) Action
	// After is called when Session.Run has returned and before the end of the answer is sent: with a Reset here the
	// request was executed and its answer was lost. Rows might have been sent already, the last DONE has not. Default:
	// nothing happens.
	After func(*Conn, *Request) Action
	// Observe is called once per message, just before the last packet of the answer is sent, so that the call is complete
	// when the client has the answer. Default: none.
	Observe func(*Conn, Exchange)
	// Log receives the errors that end connections. Default: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.ServerName == "" {
		o.ServerName = "mssqltest"
	}
	if o.MaxMessageBytes <= 0 {
		o.MaxMessageBytes = 256 << 20
	}
	if o.Before == nil {
		o.Before = func(*Conn, *Request) Action { return Action{} }
	}
	if o.After == nil {
		o.After = func(*Conn, *Request) Action { return Action{} }
	}
	if o.Observe == nil {
		o.Observe = func(*Conn, Exchange) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Server serves TDS on a listener. Its methods are safe for concurrent use.
//
// Goroutines: one accepts (started by Serve, ended by closing the listener), and each connection has one that serves
// and, after its login, one that reads (see Conn). Close joins all of them.
type Server struct {
	listener net.Listener
	handler  Handler
	options  Options
	ctx      context.Context
	cancel   context.CancelCauseFunc
	running  sync.WaitGroup

	mu     sync.Mutex // guards the following fields
	conns  []*Conn
	lastID uint16
	refuse *sqltype.Error
	closed bool
}

// firstID is the first session id that a server assigns to a user.
const firstID = 51

// Serve starts to serve the connections of ln, which the server then owns.
func Serve(ln net.Listener, h Handler, options Options) *Server {
	s := &Server{listener: ln, handler: h, options: options.withDefaults(), lastID: firstID - 1}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.running.Go(s.accept)
	return s
}

// Addr returns the address to connect to.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Conns returns the open connections, oldest first; some might not have logged in yet.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.conns)
}

// KillAll resets every open connection, as the crash of a server does.
func (s *Server) KillAll() {
	for _, c := range s.Conns() {
		c.Kill()
	}
}

// Refuse makes every later login fail with err; nil admits logins again.
func (s *Server) Refuse(err *sqltype.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *Server) refused() *sqltype.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse
}

// Close stops listening, closes every connection and returns when all sessions
// are closed.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.listener.Close()
	s.cancel(ErrConnectionGone)
	for _, c := range s.Conns() {
		_ = c.socket.Close()
	}
	s.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) accept() {
	for {
		socket, err := s.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.options.Log.Error("accept", "error", err)
			}
			return
		}
		c := s.admit(socket)
		if c == nil {
			_ = socket.Close()
			return
		}
		s.running.Go(func() {
			defer s.forget(c)
			c.serve()
		})
	}
}

// admit creates the Conn of a socket; nil if the server is closed.
func (s *Server) admit(socket net.Conn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.lastID = max(s.lastID+1, firstID)
	c := newConn(s, s.lastID, socket)
	s.conns = append(s.conns, c)
	return c
}

func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = slices.DeleteFunc(s.conns, func(other *Conn) bool { return other == c })
}
