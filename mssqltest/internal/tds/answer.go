package tds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// errFatal ends a connection after an error of class 20 or above was sent.
var errFatal = errors.New("an error of class 20 or above was sent")

// answer runs one call and sends its answer. An error ends the connection.
func (c *Conn) answer(session Session, call *call) error {
	if call.attention {
		c.acknowledge()
		return c.out.finish()
	}
	started := time.Now()
	r := &response{out: c.out, call: call, server: c.server.options.ServerName}
	err := c.run(session, call, r)
	exchange := Exchange{Requests: call.requests, RequestBytes: call.wireBytes, Rows: r.rows, Took: time.Since(started)}
	if err != nil {
		exchange.Lost, exchange.ResponseBytes = true, c.out.sent
		c.server.options.Observe(c, exchange)
		return err
	}
	if exchange.Interrupted = !call.close(); exchange.Interrupted {
		r.cut()
		exchange.ResponseBytes = c.out.total()
		if err := c.out.finish(); err != nil {
			return err
		}
		c.acknowledge()
	}
	exchange.ResponseBytes += c.out.total()
	c.server.options.Observe(c, exchange)
	if err := c.out.finish(); err != nil {
		return err
	}
	if r.fatal {
		return errFatal
	}
	return nil
}

// acknowledge writes the answer to an attention.
func (c *Conn) acknowledge() {
	c.out.buf = appendDone(c.out.buf, done{token: tokenDone, status: doneAttention})
}

// run writes the answer to a call. An error means that the connection has
// ended.
func (c *Conn) run(session Session, call *call, r *response) error {
	switch {
	case call.ignored:
		r.failed = true
		r.endRequest(Batch, false)
		return nil
	case call.refused != nil:
		err := r.Message(call.refused)
		r.endRequest(Batch, false)
		return err
	}
	for i, request := range call.requests {
		if err := c.runOne(session, call, request, r); err != nil {
			return err
		}
		// After a failed commit the transaction that should follow does not begin.
		last := i == len(call.requests)-1 || r.fatal || request.Kind == Transaction && r.broken || call.interrupted()
		r.endRequest(request.Kind, !last)
		if last {
			break
		}
	}
	return nil
}

func (c *Conn) runOne(session Session, call *call, request *Request, r *response) error {
	if request.Reset {
		if err := r.simple(func(b []byte) []byte { return appendEnvBytes(b, envReset, nil, nil) }); err != nil {
			return err
		}
		r.out.keep()
	}
	before := c.server.options.Before(c, request)
	if err := c.act(call, before); err != nil {
		return err
	}
	if before.Error != nil {
		return r.Message(before.Error)
	}
	if before.Ignore {
		return nil
	}
	err := session.Run(call.ctx, request, r)
	switch {
	case r.lost != nil:
		return r.lost
	case call.gone():
		return ErrConnectionGone
	case err != nil && !endedBy(call.ctx, err):
		// The error shows a test the reason, instead of only a closed connection.
		c.server.options.Log.Error("emulator failed", "id", c.id, "error", err)
		return r.Message(&sqltype.Error{Number: 50000, State: 1, Class: fatalClass, Line: 1,
			Message: fmt.Sprintf("The emulator failed: %v", err)})
	}
	after := c.server.options.After(c, request)
	if err := c.act(call, after); err != nil {
		return err
	}
	if after.Error != nil {
		return r.Message(after.Error)
	}
	return nil
}

// endedBy reports whether err is the error that a session returns when ctx has ended.
func endedBy(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// act applies the delay and the fault of an Action.
func (c *Conn) act(call *call, a Action) error {
	pause(call.ctx, a.Delay)
	switch a.Fault {
	case Reset:
		c.Kill()
		return ErrConnectionGone
	case Hang:
		<-c.ctx.Done()
		return ErrConnectionGone
	default:
		return nil
	}
}
