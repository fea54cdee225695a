package keystorm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// kind is what a process tells.
type kind string

const (
	joined   kind = "joined"   // the process consumes
	quiet    kind = "quiet"    // it sends no more
	intended kind = "intended" // messages, before they are sent; at is after all earlier sends of the key
	stored   kind = "stored"   // the send returned, or its transaction was committed
	dropped  kind = "dropped"  // the transaction was rolled back
	got      kind = "got"      // a lease, before anything is done with it
	settling kind = "settling" // it, before that is asked for
	ended    kind = "ended"    // the end of the message is in the database
	returned kind = "returned" // the message is: it comes again
	lost     kind = "lost"     // the lease had ended before
	unknown  kind = "unknown"  // nobody knows what came of it
	failed   kind = "failed"   // something that should not
)

// event is what a process tells, a line each. Times are Unix nanoseconds of the machine's
// clock, which all processes share.
type event struct {
	Kind   kind   `json:"k"`
	At     int64  `json:"t"`
	Key    string `json:"key,omitempty"`
	Number int    `json:"n,omitempty"`
	Last   int    `json:"to,omitempty"` // of sends: the last of those that were sent together
	// Lease tells one from another of the same process.
	Lease    int64  `json:"l,omitempty"`
	Deadline int64  `json:"d,omitempty"` // of got and settling: when the holder believes that it ends
	How      string `json:"how,omitempty"`
	// Took is, at the first delivery of a message, the time since it was intended.
	Took time.Duration `json:"took,omitempty"`
}

func now() int64 { return time.Now().UnixNano() }

// tell writes events in one write, so that a kill takes back nothing of what was done
// afterwards. It may cut the last line short.
func tell(events ...event) {
	var lines []byte
	for _, e := range events {
		if e.At == 0 {
			e.At = now()
		}
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // there is nothing in it that JSON does not know
		}
		lines = append(append(lines, line...), '\n')
	}
	_, _ = os.Stdout.Write(lines) // without a reader the judge is gone, and the input ends
}

func parseEvent(line string) (e event, err error) {
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return e, fmt.Errorf("line %q: %w", line, err)
	}
	return e, nil
}
