package kills

import (
	"encoding/json"
	"os"
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
	Settling  Kind = "settling"  // a lease, before it is settled, if How and Deadline have changed since Got
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
	Ack        How = "" // most do
	Nack       How = "nack"
	Release    How = "release"
	DeadLetter How = "dead-letter"
)

// Event is an event of a process, one per line. The name belongs to the message: different messages have different names.
// Times are Unix nanoseconds of the machine's clock, which all processes share.
type Event struct {
	Kind    Kind     `json:"k"`
	At      int64    `json:"t"`
	Name    string   `json:"n,omitempty"`
	ID      chanq.ID `json:"id,omitzero"`
	Attempt int      `json:"a,omitempty"`
	Lease   int64    `json:"lease,omitempty"` // the process's number of the lease, if attempts alone do not distinguish leases
	How     How      `json:"how,omitempty"`   // of Got and Settling
	// Deadline is when the holder expected, at Got or Settling, that its lease would end; 0 if unknown.
	Deadline int64 `json:"d,omitempty"`
	// Latency is how long a message had been due at its first Got; 0 otherwise.
	Latency time.Duration `json:"l,omitempty"`
	Took    time.Duration `json:"took,omitempty"` // of Slow
	Usage   usage         `json:"u,omitzero"`     // of Weighed
	Error   string        `json:"err,omitempty"`  // of an outcome other than Confirmed or Stored
}

// usage is the resource usage of a process.
type usage struct {
	Heap       uint64 `json:"heap"` // bytes, garbage included
	Goroutines int    `json:"go"`
	Faults     int64  `json:"faults"`  // injected so far
	Freezes    int64  `json:"freezes"` // of its connections, so far
}

// Tell prints events in one write. Events without a time happen now. A kill might truncate the last line.
func Tell(events ...Event) {
	var lines []byte
	at := now()
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

func now() int64 { return time.Now().UnixNano() }
