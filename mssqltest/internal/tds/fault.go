package tds

import (
	"time"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// Fault is what an Action does to a connection.
type Fault uint8

// The faults.
const (
	NoFault Fault = iota
	// Reset cuts the connection: the client sees RST. Unsent data is lost.
	Reset
	// Hang leaves the connection open and never answers again, not even an attention, until either side closes it.
	Hang
)

// Action is how a hook changes the handling of a request. The zero Action changes nothing.
type Action struct {
	// Delay is applied first. An attention ends it; the request then runs with a context that has ended.
	Delay time.Duration
	Fault Fault
	// Ignore, from Before, answers the request without running it.
	Ignore bool
	// Error is sent to the client: from Before instead of running the request, from After after the output of the request.
	Error *sqltype.Error
}

// Exchange is one message of a client and its answer, for Options.Observe. An attention is part of the exchange that it
// interrupts.
type Exchange struct {
	Requests      []*Request    // several, if a message has several procedure calls; none, if the wire refused it
	RequestBytes  int           // headers included
	ResponseBytes int           // headers included
	Rows          int           // written by the session
	Took          time.Duration // from the complete message read to the last packet ready
	Interrupted   bool          // by an attention, which the answer acknowledges
	Lost          bool          // the connection ended before the answer was complete
}
