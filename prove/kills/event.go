package kills

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/chanq/chanq"
)

// Kind is what a process tells.
type Kind string

// The kinds.
const (
	Started   Kind = "started"   // the process
	Intended  Kind = "intended"  // a message, before it is sent; ID if the sender chose it
	Stored    Kind = "stored"    // Send returned nil
	Got       Kind = "got"       // a lease, before anything is done with it
	Confirmed Kind = "confirmed" // Wait returned nil
	Lost      Kind = "lost"      // Wait told that the lease had ended
	Unknown   Kind = "unknown"   // Wait told that the outcome is unknown
	Failed    Kind = "failed"    // Wait told anything else
	Ended     Kind = "ended"     // the hook told that a lease ended, also of one in the buffer; by ID
	Slow      Kind = "slow"      // a claim took long
	Weighed   Kind = "weighed"   // the process
)

// How is what the holder of a lease is going to do with it.
type How string

// The ways to settle.
const (
	Ack     How = "" // most do
	Nack    How = "nack"
	Release How = "release"
	Bury    How = "bury"
)

// Event is what a process tells, a line each. The name is the message's: no two
// that are meant to be different have the same. Times are Unix nanoseconds of the
// machine's clock, which all processes share.
type Event struct {
	Kind    Kind     `json:"k"`
	At      int64    `json:"t"`
	Name    string   `json:"n,omitempty"`
	ID      chanq.ID `json:"id,omitzero"`
	Attempt int      `json:"a,omitempty"`
	How     How      `json:"how,omitempty"` // of Got
	// Deadline is when the holder believed, at Got, that its lease would end; 0 if it
	// is not told.
	Deadline int64 `json:"d,omitempty"`
	// Latency is, at the first Got of a message, how long it was due; 0 otherwise.
	Latency time.Duration `json:"l,omitempty"`
	Took    time.Duration `json:"took,omitempty"` // of Slow
	Usage   usage         `json:"u,omitzero"`     // of Weighed
}

// usage is what a process weighs.
type usage struct {
	Heap       uint64 `json:"heap"` // bytes, garbage included
	Goroutines int    `json:"go"`
	Faults     int64  `json:"faults"`  // injected so far
	Freezes    int64  `json:"freezes"` // of its own connections, so far
}

func parseEvent(line string) (e Event, err error) {
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return e, fmt.Errorf("line %q: %w", line, err)
	}
	return e, nil
}

func now() int64 { return time.Now().UnixNano() }
