// Package status records whether something works, and calls a function when that changes.
package status

import (
	"sync"

	"github.com/chanq/chanq/internal/base"
)

// Status is nil if something works, and otherwise the reason why it does not. It is safe for
// concurrent use.
//
// Its goroutines, joined by Close, are one while there is a change to report, and one for each
// call.
type Status struct {
	changed func(error)
	calls   base.Group

	mu        sync.Mutex // guards what follows; not held during a call
	closed    bool
	reporting bool
	err       error
	reported  error // by the last call
}

// New makes a Status that is nil. changed is called once per change from nil to an error and
// back, by one goroutine at a time; it may be nil. Changes during a call are reported as one, or
// not at all if they cancel out. A panic in it ends only that call.
func New(changed func(error)) *Status { return &Status{changed: changed} }

// Set sets the Status. It does not wait for a call.
func (s *Status) Set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if s.changed != nil && !s.reporting && !s.closed {
		s.reporting = true
		s.calls.Go(s.report)
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
func (s *Status) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
}

// report makes calls until there is no change to report.
func (s *Status) report() {
	for {
		s.mu.Lock()
		err := s.err
		if (err == nil) == (s.reported == nil) {
			s.reporting = false
			s.mu.Unlock()
			return
		}
		s.reported = err
		s.mu.Unlock()
		base.Call(func() { s.changed(err) })
	}
}
