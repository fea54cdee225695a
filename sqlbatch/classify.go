package sqlbatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// RunError is an error of a statement that the database has compiled since, so
// that all it names is there: see Traits.PrepareTells.
type RunError struct{ Err error }

func (e *RunError) Error() string { return e.Err.Error() }
func (e *RunError) Unwrap() error { return e.Err }

// classifyCommon knows the errors that every driver may return through
// database/sql. ok is false for those of a database.
func classifyCommon(err error) (c Class, ok bool) {
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		// Drivers return ErrBadConn only before a statement was sent.
		return Refused, true
	case errors.Is(err, sql.ErrTxDone): // the caller's transaction had ended: nothing was sent
		return Permanent, true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unknown, true
	}
	return Unknown, false
}
