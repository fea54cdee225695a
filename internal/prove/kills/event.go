// Package kills kills the processes of a queue at random, and its server
// once, and judges from what each of them wrote down whether chanq kept its
// promises.
//
// The judge (Judge) is a pure function over the events of processes and of those
// who did something to them; other tests that break things use it as well.
package kills

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chanq/chanq"
)

// Kind is what a process wrote down.
type Kind string

// The kinds.
const (
	Started  Kind = "started"  // the process
	Intended Kind = "intended" // a message, before it is sent; ID if the sender chose it
	Stored   Kind = "stored"   // Send returned nil
	Got      Kind = "got"      // a lease, before it is acked
	Acked    Kind = "acked"    // Wait returned nil
	Lost     Kind = "lost"     // the process was told that the lease ended
	Unknown  Kind = "unknown"  // the process was told that the outcome is unknown
)

// Event is a line of a process's log. The body names the message: no two that
// are meant to be different have the same.
type Event struct {
	Kind    Kind      `json:"kind"`
	At      time.Time `json:"at"`
	Body    string    `json:"body,omitempty"`
	ID      chanq.ID  `json:"id,omitzero"`
	Attempt int       `json:"attempt,omitempty"`
	// Deadline is when the holder believed, at Got, that its lease would end.
	Deadline time.Time `json:"deadline,omitzero"`
	PID      int       `json:"pid,omitempty"` // at Started

	Life Life `json:"-"` // of the process; the name of its log
}

// Life is one process in one of its places.
type Life struct {
	Place string // "consumer-2"
	N     int    // from 1
}

func (l Life) String() string { return fmt.Sprintf("%s.%d", l.Place, l.N) }

// Log is the log of one life: a file that is only appended to. What Write has
// returned from survives the process.
type Log struct{ file *os.File }

// CreateLog makes the log of a life in a directory.
func CreateLog(dir string, life Life) (*Log, error) {
	f, err := os.OpenFile(logFile(dir, life), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	return &Log{f}, err
}

func logFile(dir string, life Life) string { return filepath.Join(dir, life.String()+".log") }

// Write appends an event with the present time, in one write, so that the lines
// of several goroutines do not mix.
func (l *Log) Write(e Event) error {
	e.At = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// ReadLog returns the events of a life, none if it never began to write. A kill
// may have cut the last line: what it would have said was not said.
func ReadLog(dir string, life Life) ([]Event, error) {
	text, err := os.ReadFile(logFile(dir, life))
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var events []Event
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			break
		}
		e := Event{Life: life}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("log of %s: %w: %q", life, err, line)
		}
		events = append(events, e)
	}
	return events, nil
}

// Unfinished returns the messages with a chosen ID that a life meant to send and
// is not known to have stored: its successor sends them again.
func Unfinished(events []Event) []Event {
	stored := map[string]bool{}
	for _, e := range events {
		if e.Kind == Stored {
			stored[e.Body] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		return e.Kind != Intended || e.ID.IsZero() || stored[e.Body]
	})
}
