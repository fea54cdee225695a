package mssqltest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/engine"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// Moment is the stage of a request at which a fault occurs.
type Moment uint8

// The moments.
const (
	// Received: the request has arrived and has not started.
	Received Moment = iota
	// Started: its first statement that reads or writes rows is about to run. An error rolls back as the server's own
	// errors do.
	Started
	// Applied: an INSERT has been done, or an UPDATE or DELETE that returned rows, and nothing is committed. The client
	// might already have the rows.
	Applied
	// Answered: all changes are committed, and the end of the answer is not sent.
	Answered
)

func (m Moment) String() string {
	return [...]string{"received", "started", "applied", "answered"}[m]
}

// Request is one message of a client.
type Request struct {
	// Text is the batch, or the text that sp_executesql, sp_prepare or sp_prepexec gets. For another procedure it is the
	// name. A driver that begins and ends transactions without a text has BEGIN TRANSACTION, SAVE TRANSACTION, COMMIT or
	// ROLLBACK here.
	Text string
}

// requestOf returns a request of the wire as faults and OnRequest see it.
func requestOf(r *tds.Request) Request {
	switch {
	case r.Kind == tds.Batch:
		return Request{r.Text}
	case r.Kind == tds.Transaction:
		switch r.Tx.Op {
		case tds.TxBegin:
			return Request{"BEGIN TRANSACTION"}
		case tds.TxCommit:
			return Request{"COMMIT"}
		case tds.TxRollback:
			return Request{"ROLLBACK"}
		case tds.TxSave:
			return Request{"SAVE TRANSACTION"}
		}
	}
	place, prepared := textIn[strings.TrimPrefix(strings.ToLower(r.Proc), "sys.")]
	if prepared && place < len(r.Params) {
		if text, ok := r.Params[place].Value.(string); ok {
			return Request{text}
		}
	}
	return Request{r.Proc}
}

// textIn are the procedures that run a text, and which of their parameters it is.
var textIn = map[string]int{"sp_executesql": 0, "sp_prepare": 2, "sp_prepexec": 2}

// Fault is a failure of some of the requests of a server, see Server.Inject.
type Fault struct {
	// Match selects requests. Default: all.
	Match func(Request) bool
	// Skip is how many of them are spared first, and Times is how many the fault then affects. Default: 0 and 1.
	Skip, Times int
	At          Moment

	// Delay is applied first: the client might give up meanwhile. It is the machine's time, as the client's deadlines are.
	// Only at Received and Answered.
	Delay time.Duration
	// Ignore answers the request without results and does not run it, such as a statement that mssqltest does not
	// support. Only at Received.
	Ignore bool
	// Error is the number of the error with which the request fails. At Answered it follows the results. 596 is the error
	// of a killed session: the connection ends with it.
	Error int32
	// Reset cuts the connection; its session rolls back an open transaction.
	Reset bool
	// Hang leaves the connection open and never answers, not even an attention, until either side closes it. Only at
	// Received and Answered.
	Hang bool
}

// Injected is a fault of a running server.
type Injected struct {
	fault Fault
	fired chan struct{}

	seen, left int // guarded by faults.mu
}

// Fired returns a channel that is closed when the fault has occurred for the last time.
func (i *Injected) Fired() <-chan struct{} { return i.fired }

// faults has the injected faults and the hooks of one server.
type faults struct {
	mu     sync.Mutex
	list   []*Injected
	hooks  Hooks        // of SetHooks
	output map[int]bool // sessions whose running statement has returned a row
}

func newFaults(e *engine.Engine) *faults {
	f := &faults{output: map[int]bool{}}
	e.SetHooks(engine.Hooks{Before: f.started, Applied: f.applied, OutputRow: f.returned})
	return f
}

func (f *faults) set(h Hooks) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks = h
}

// Inject adds a fault. Faults are tried in the order of their injection; one request meets at most one fault at each
// moment.
func (s *Server) Inject(f Fault) *Injected {
	if f.Match == nil {
		f.Match = func(Request) bool { return true }
	}
	i := &Injected{fault: f, fired: make(chan struct{}), left: max(f.Times, 1)}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, i)
	return i
}

// Failover resets every connection and refuses logins with error 40613 for d of the machine's time, as a database that
// moves to another node.
func (s *Server) Failover(t testing.TB, d time.Duration) {
	s.wire.Refuse(serverError(40613))
	s.wire.KillAll()
	over := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		s.wire.Refuse(nil)
		close(over)
	})
	t.Cleanup(func() {
		if !timer.Stop() {
			<-over
		}
	})
}

// KillAll resets every connection, as the crash of a server does. Its sessions roll back.
func (s *Server) KillAll() { s.wire.KillAll() }

// strike returns the fault that a request meets at a moment, nil for none.
func (f *faults) strike(at Moment, r Request) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, i := range f.list {
		if i.fault.At != at || !i.fault.Match(r) {
			continue
		}
		if i.seen++; i.seen <= i.fault.Skip {
			continue
		}
		if i.left--; i.left == 0 {
			f.list = slices.Delete(f.list, n, n+1)
			close(i.fired)
		}
		return &i.fault
	}
	return nil
}

// at returns the hook of the wire for a moment.
func (f *faults) at(m Moment) func(*tds.Conn, *tds.Request) tds.Action {
	return func(_ *tds.Conn, r *tds.Request) tds.Action { return f.strike(m, requestOf(r)).action() }
}

func (f *Fault) action() tds.Action {
	if f == nil {
		return tds.Action{}
	}
	a := tds.Action{Delay: f.Delay}
	switch {
	case f.Reset:
		a.Fault = tds.Reset
	case f.Hang:
		a.Fault = tds.Hang
	case f.Ignore:
		a.Ignore = true
	case f.Error != 0:
		a.Error = serverError(f.Error)
	}
	return a
}

// The hooks of the engine: the faults, and then those of SetHooks.

func (f *faults) started(ctx context.Context, st engine.Statement) error {
	f.mu.Lock()
	delete(f.output, st.Session)
	before := f.hooks.Before
	f.mu.Unlock()
	switch st.Kind {
	case "SelectStatement", "InsertStatement", "UpdateStatement", "DeleteStatement":
		if err := f.strike(Started, Request{st.Text}).fail(ctx); err != nil {
			return err
		}
	}
	if before != nil {
		return before(ctx, st)
	}
	return nil
}

func (f *faults) returned(ctx context.Context, st engine.Statement, n int) error {
	f.mu.Lock()
	f.output[st.Session] = true
	row := f.hooks.OutputRow
	f.mu.Unlock()
	if row != nil {
		return row(ctx, st, n)
	}
	return nil
}

func (f *faults) applied(ctx context.Context, st engine.Statement) error {
	f.mu.Lock()
	returned, applied := f.output[st.Session], f.hooks.Applied
	f.mu.Unlock()
	changed := st.Kind == "InsertStatement"
	if st.Kind == "UpdateStatement" || st.Kind == "DeleteStatement" {
		changed = returned
	}
	if changed {
		if err := f.strike(Applied, Request{st.Text}).fail(ctx); err != nil {
			return err
		}
	}
	if applied != nil {
		return applied(ctx, st)
	}
	return nil
}

func (f *Fault) fail(ctx context.Context) error {
	switch {
	case f == nil:
		return nil
	case f.Reset:
		tds.ConnOf(ctx).Kill()
		<-ctx.Done()
		return ctx.Err()
	case f.Error != 0:
		return serverError(f.Error)
	}
	return nil
}

// serverError returns an error with the severity that the server uses for it.
func serverError(number int32) *sqltype.Error {
	e := &sqltype.Error{Number: number, State: 1, Class: 16, Message: "injected by the test"}
	switch number {
	case 1205:
		e.Class = 13
	case 596:
		e.Class = 21
	case 40197, 40501, 40613:
		e.Class = 17
	}
	return e
}
