package session

import (
	"errors"
	"fmt"
	"runtime/debug"

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

// Unconnected reports a failure to get a connection.
func Unconnected(err error) bool {
	var notRun *NotRunError
	return errors.As(err, &notRun) && notRun.Unconnected
}

// PanicError is a panic of the driver's, or of what reads its rows, made an error. Whether
// the database has applied the statement is unknown, unless a NotRunError is around it; and
// whoever repeats it meets the panic again.
type PanicError struct {
	Value any
	Stack []byte
}

func newPanicError(p any) *PanicError { return &PanicError{Value: p, Stack: debug.Stack()} }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// caught makes an error of a panic. It is to be deferred.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = newPanicError(p)
	}
}

// Panicked reports that an error is of a panic.
func Panicked(err error) bool {
	var p *PanicError
	return errors.As(err, &p)
}

// Fell reports a panic of a statement: its outcome is unknown, though it is not to be repeated.
func Fell(err error) bool {
	var notRun *NotRunError
	return Panicked(err) && !errors.As(err, &notRun)
}

// Classify is the dialect's classification, with what a session knows: what was not
// run has no unknown outcome.
func Classify(d sqlbatch.Dialect, err error) sqlbatch.Class {
	if Panicked(err) {
		return sqlbatch.Permanent
	}
	c := d.Classify(err)
	if _, notRun := err.(*NotRunError); notRun && c == sqlbatch.Unknown {
		return sqlbatch.Refused
	}
	return c
}
