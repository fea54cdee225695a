package tds

import (
	"time"

	"github.com/chanq/chanq/prove/testdb/mssqltest/sqltype"
)

// Fault is what an Action does to a connection.
type Fault uint8

// The faults.
const (
	NoFault Fault = iota
	// Reset cuts the connection: the client sees RST. What was not sent yet is
	// lost.
	Reset
	// Hang leaves the connection open and never answers again, not even an
	// attention, until either side closes it.
	Hang
)

// Action is what a hook makes of a request. The zero Action lets it pass.
type Action struct {
	// Delay comes first. An attention ends it; the request then runs with a
	// context that has ended.
	Delay time.Duration
	Fault Fault
	// Error is sent to the client: from Before instead of running the request,
	// from After behind what the request wrote.
	Error *sqltype.Error
}

// Exchange is one message of a client and its answer, for Options.Observe. An
// attention is part of the exchange that it interrupts.
type Exchange struct {
	Requests      []*Request    // several, where a message holds several procedure calls; none, where the wire refused it
	RequestBytes  int           // headers included
	ResponseBytes int           // headers included
	Rows          int           // written by the session
	Took          time.Duration // from the whole message read to the last packet ready
	Interrupted   bool          // by an attention, which the answer acknowledges
	Lost          bool          // the connection went before the answer was whole
}
