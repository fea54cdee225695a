package tds

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// The causes with which the context of Session.Run ends.
var (
	ErrAttention      = errors.New("tds: the client cancelled the request")
	ErrConnectionGone = errors.New("tds: the connection is gone")
)

// call is one message of the client and its pending answer. The reading goroutine makes it and might interrupt it; the
// serving goroutine answers it and closes it. The first of the two decides how an attention is acknowledged:
//
//	open --interrupt--> interrupted --close--> closed   the answer is cut short, the acknowledgement follows it
//	open --close--> closed                              the acknowledgement has the position of the attention among the calls
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	requests  []*Request
	wireBytes int
	refused   *sqltype.Error // the answer, if the wire itself refuses the message
	ignored   bool           // the client withdrew the message while sending it
	attention bool           // an attention that found nothing to interrupt

	state atomic.Int32
}

const (
	callOpen = iota
	callInterrupted
	callClosed
)

// interrupt cancels the call. It reports false if its answer is already being sent.
func (c *call) interrupt() bool {
	if c.state.CompareAndSwap(callOpen, callInterrupted) {
		c.cancel(ErrAttention)
		return true
	}
	return c.state.Load() == callInterrupted
}

// close makes the call uninterruptible. It reports false if the call was interrupted.
func (c *call) close() bool { return c.state.Swap(callClosed) == callOpen }

func (c *call) interrupted() bool { return c.state.Load() == callInterrupted }

// gone reports whether the connection has ended, so that an answer would not be read.
func (c *call) gone() bool {
	return c.ctx.Err() != nil && errors.Is(context.Cause(c.ctx), ErrConnectionGone)
}
