package kills

import (
	"encoding/json"
	"os"
	"time"

	"github.com/chanq/chanq"
)

// Kind is what an event says.
type Kind string

// The kinds.
const (
	Started   Kind = "started"   // the process
	Quiet     Kind = "quiet"     // the process sends no more
	Intended  Kind = "intended"  // a message, before it is sent; ID if the sender chose it
	Stored    Kind = "stored"    // Send returned nil, or its transaction was committed
	Dropped   Kind = "dropped"   // Send returned an error that says that it is not stored, or its transaction was rolled back
	Got       Kind = "got"       // a lease, before anything is done with it
	Settling  Kind = "settling"  // a lease, before it is settled, if How and Deadline are not as they were at Got
	Confirmed Kind = "confirmed" // Wait returned nil
	Lost      Kind = "lost"      // Wait told that the lease had ended
	Unknown   Kind = "unknown"   // Wait told that the outcome is unknown; also of a send
	Failed    Kind = "failed"    // Wait told anything else; also of a send
	Ended     Kind = "ended"     // the hook told that a lease ended, also of one in the buffer; by ID
	Slow      Kind = "slow"      // a claim took long
	Dying     Kind = "dying"     // the process handles a deadly message, and waits for its end
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
	Lease   int64    `json:"lease,omitempty"` // the process's number of the lease, if attempts alone do not tell leases apart
	How     How      `json:"how,omitempty"`   // of Got and Settling
	// Deadline is when the holder believed, at Got or Settling, that its lease would end; 0 if it
	// is not told.
	Deadline int64 `json:"d,omitempty"`
	// Latency is, at the first Got of a message, how long it was due; 0 otherwise.
	Latency time.Duration `json:"l,omitempty"`
	Took    time.Duration `json:"took,omitempty"` // of Slow
	Usage   usage         `json:"u,omitzero"`     // of Weighed
	Error   string        `json:"err,omitempty"`  // of an outcome that is not Confirmed or Stored
}

// usage is what a process weighs.
type usage struct {
	Heap       uint64 `json:"heap"` // bytes, garbage included
	Goroutines int    `json:"go"`
	Faults     int64  `json:"faults"`  // injected so far
	Freezes    int64  `json:"freezes"` // of its own connections, so far
}

// Tell writes events in one write. Those without a time happen now. A kill may cut the last
// line short.
func Tell(events ...Event) {
	var lines []byte
	at := now()
	for _, e := range events {
		if e.At == 0 {
			e.At = at
		}
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // there is nothing in it that JSON does not know
		}
		lines = append(append(lines, line...), '\n')
	}
	_, _ = os.Stdout.Write(lines) // without a reader, the crew is gone, and stdin ends
}

func now() int64 { return time.Now().UnixNano() }
