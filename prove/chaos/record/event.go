// Package record has what the programs of a test with faults did, and the judge of it. Every process, or every part
// of a program, tells what it is going to do before it does it, and the outcomes; a History has the events of all of
// them, and the faults that were injected. Judge finds what was lost, delivered after its end, out of order, or
// redelivered too early.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// Kind is the kind of an event.
type Kind string

// The kinds.
const (
	Started   Kind = "started"   // the process
	Quiet     Kind = "quiet"     // the process sends no more messages
	Intended  Kind = "intended"  // a message, before it is sent; ID if the sender chose it
	Stored    Kind = "stored"    // Send returned nil, or its transaction was committed
	Dropped   Kind = "dropped"   // Send returned an error because it is not stored, or its transaction was rolled back
	Got       Kind = "got"       // a lease, before it is used
	Settling  Kind = "settling"  // a lease, before it is settled in the way How
	Confirmed Kind = "confirmed" // Wait returned nil
	Lost      Kind = "lost"      // Wait returned that the lease had ended
	Unknown   Kind = "unknown"   // Wait returned that the outcome is unknown; also of a send
	Failed    Kind = "failed"    // Wait returned another error; also of a send
	Ended     Kind = "ended"     // the hook reported that a lease ended, also for a buffered one; by ID
	Slow      Kind = "slow"      // a claim took long
	Dying     Kind = "dying"     // the process handles a deadly message, and waits for its end
	Weighed   Kind = "weighed"   // the process, with its Usage
)

// How is how the holder of a lease is going to settle it.
type How string

// The ways to settle.
const (
	Ack        How = "ack"
	AckTx      How = "ack in a transaction"
	Nack       How = "nack"
	Release    How = "release"
	Snooze     How = "snooze"
	DeadLetter How = "dead-letter"
	Hold       How = "dead-letter, and redrive" // the dead message keeps its key closed until it is redriven
)

// Event is an event of a process, one per line. The name belongs to the message: different messages have different
// names. Times are Unix nanoseconds of the machine's clock, which all processes share.
type Event struct {
	Kind    Kind     `json:"k"`
	At      int64    `json:"t"`
	Name    string   `json:"n,omitempty"`
	ID      chanq.ID `json:"id,omitzero"`
	Attempt int      `json:"a,omitempty"`
	Lease   int64    `json:"lease,omitempty"` // the process's number of the lease, if attempts alone do not distinguish leases
	How     How      `json:"how,omitempty"`   // of Settling
	// Deadline is when the holder expected, at Got or Settling, that its lease would end; 0 if unknown.
	Deadline int64 `json:"d,omitempty"`
	// Latency is how long a message had been due at its first Got; 0 otherwise.
	Latency time.Duration `json:"l,omitempty"`
	Took    time.Duration `json:"took,omitempty"` // of Slow
	Usage   Usage         `json:"u,omitzero"`     // of Weighed
	Error   string        `json:"err,omitempty"`  // of an outcome other than Confirmed or Stored
}

// Usage is the resource usage of a process.
type Usage struct {
	Heap       uint64 `json:"heap"` // bytes, garbage included
	Goroutines int    `json:"go"`
	Faults     int64  `json:"faults"`  // injected so far
	Freezes    int64  `json:"freezes"` // of its connections, so far
}

// Tell prints events in one write. Events without a time happen now. A kill might truncate the last line.
func Tell(events ...Event) {
	var lines []byte
	at := Now()
	for _, e := range events {
		if e.At == 0 {
			e.At = at
		}
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // every field can be encoded as JSON
		}
		lines = append(append(lines, line...), '\n')
	}
	_, _ = os.Stdout.Write(lines) // without a reader, the crew is gone, and stdin ends
}

// Now is the time of an event that happens now.
func Now() int64 { return time.Now().UnixNano() }

// OutcomeOf returns the kind of the error that Wait returned for a settle, or that a send returned for a message.
func OutcomeOf(err error) Kind {
	var op *chanq.OpError
	switch {
	case err == nil:
		return Confirmed
	case errors.Is(err, chanq.ErrLeaseLost):
		return Lost
	case errors.As(err, &op) && op.Unknown:
		return Unknown
	}
	return Failed
}

// NameOf names a message by its key, or by another line of messages that are sent one after another, and its number
// in it, from 1. ParseName is its inverse. A guilt might follow a blank.
func NameOf(key string, number int) string { return fmt.Sprint(key, "/", number) }

// ParseName returns the key and the number of a message.
func ParseName(name string) (key string, number int) {
	key, n, _ := strings.Cut(name, "/")
	n, _, _ = strings.Cut(n, " ")
	number, _ = strconv.Atoi(n)
	return key, number
}
