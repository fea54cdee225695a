// Package status records whether something works, and calls a function when that changes.
package status

import (
	"sync"

	"github.com/chanq/chanq/internal/base"
)

// Status is nil if something works, and otherwise the reason why it does not. It is safe for
// concurrent use. Its goroutines are those of its Events, which Close joins.
type Status struct {
	changed func(error)
	calls   base.Events

	mu       sync.Mutex // guards what follows; not held during a call
	err      error
	reported error // by the last call
}

// New makes a Status that is nil. changed is called once per change from nil to an error and
// back, by one goroutine at a time; it may be nil. Changes during a call are reported as one, or
// not at all if they cancel out. A panic in it ends only that call.
func New(changed func(error)) *Status { return &Status{changed: changed} }

// Set sets the Status. It does not wait for a call.
func (s *Status) Set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; s.changed != nil {
		s.calls.Enqueue(s.report)
	}
}

// Err returns the error that was set last.
func (s *Status) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close waits for the running call, and for the call of an earlier change. No later change is
// reported.
func (s *Status) Close() { s.calls.Close() }

// report makes a call if there is a change to report.
func (s *Status) report() {
	s.mu.Lock()
	err := s.err
	same := (err == nil) == (s.reported == nil)
	if !same {
		s.reported = err
	}
	s.mu.Unlock()
	if !same {
		base.Call(func() { s.changed(err) })
	}
}
