package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/puddle/v2"

	"github.com/chanq/chanq/sqlbatch"
)

// ErrClosed is the error of a statement that begins after its part was closed.
var ErrClosed = errors.New("the sessions are closed")

// NotRunError marks a failure after which nothing was applied: no connection was
// available, or a transaction did not reach its commit.
type NotRunError struct {
	Err         error
	Unconnected bool // there was no connection
}

func (e *NotRunError) Error() string { return e.Err.Error() }
func (e *NotRunError) Unwrap() error { return e.Err }

// Unconnected reports whether err is a failure to get a connection.
func Unconnected(err error) bool {
	var notRun *NotRunError
	return errors.As(err, &notRun) && notRun.Unconnected
}

// PanicError is a panic of the driver or of a scan function, as an error. Whether the database
// has applied the statement is unknown, unless the error is wrapped in a NotRunError. If the
// statement is repeated, it panics again.
type PanicError struct {
	Value any
	Stack []byte
}

func newPanicError(p any) *PanicError { return &PanicError{Value: p, Stack: debug.Stack()} }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// caught turns a panic into an error. It must be deferred.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = newPanicError(p)
	}
}

// Panicked reports whether err is a panic.
func Panicked(err error) bool {
	var p *PanicError
	return errors.As(err, &p)
}

// Fell reports whether a statement panicked: its outcome is unknown, but it must not be repeated.
func Fell(err error) bool {
	var notRun *NotRunError
	return Panicked(err) && !errors.As(err, &notRun)
}

// errClosed is the error of a *sql.DB that was closed: database/sql does not export it.
var errClosed = func() error {
	db := sql.OpenDB(nil)
	_ = db.Close()
	return db.Ping()
}()

// closed reports that db was closed. It costs no round trip.
func closed(db *sql.DB) bool {
	ended, end := context.WithCancel(context.Background())
	end()
	_, err := db.Conn(ended)
	return err == errClosed
}

// Hopeless reports that no later statement can succeed: err is a panic, or the *sql.DB or the
// pool below it was closed.
func Hopeless(err error) bool {
	return Panicked(err) || errors.Is(err, errClosed) || errors.Is(err, puddle.ErrClosedPool)
}

// Classify returns the dialect's class of err, except that a hopeless one is permanent, and
// the outcome of a statement that was not run is never unknown.
func Classify(d sqlbatch.Dialect, err error) sqlbatch.Class {
	if Hopeless(err) {
		return sqlbatch.Permanent
	}
	c := d.Classify(err)
	if _, notRun := err.(*NotRunError); notRun && c == sqlbatch.Unknown {
		return sqlbatch.Refused
	}
	return c
}
