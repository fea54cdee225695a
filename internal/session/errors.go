package session

import (
	"errors"

	"github.com/chanq/chanq/sqlbatch"
)

// ErrClosed is the error of a statement that comes after the end of its part.
var ErrClosed = errors.New("the sessions are closed")

// NotRunError marks a failure before anything could have been applied: to get a
// connection, or to reach the commit of a transaction.
type NotRunError struct {
	Err         error
	Unconnected bool // there was no connection
}

func (e *NotRunError) Error() string { return e.Err.Error() }
func (e *NotRunError) Unwrap() error { return e.Err }

// Classify is the dialect's classification, with what a session knows: what was not
// run has no unknown outcome.
func Classify(d sqlbatch.Dialect, err error) sqlbatch.Class {
	c := d.Classify(err)
	if _, notRun := err.(*NotRunError); notRun && c == sqlbatch.Unknown {
		return sqlbatch.Refused
	}
	return c
}
