package session

import (
	"context"
	"database/sql"
	"errors"

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

// Hopeless reports that no later statement can succeed: the *sql.DB or the pool below it was closed.
func Hopeless(err error) bool {
	return errors.Is(err, errClosed) || errors.Is(err, puddle.ErrClosedPool)
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
