package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/chanq/chanq/sqlbatch"
)

// classifyCommon classifies the errors that database/sql returns with any driver. ok is false for errors of the
// database.
func classifyCommon(err error) (c sqlbatch.Class, ok bool) {
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		// Drivers return ErrBadConn only before a statement is sent.
		return sqlbatch.Refused, true
	case errors.Is(err, sql.ErrTxDone): // the caller's transaction had ended: nothing was sent
		return sqlbatch.Permanent, true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sqlbatch.Unknown, true
	}
	return sqlbatch.Unknown, false
}

// SQLite's result codes (sqlite.org/rescode.html); the low byte is the primary one.
const (
	codeError, codePerm, codeAbort, codeBusy, codeLocked = 1, 3, 4, 5, 6
	codeNoMem, codeReadOnly, codeInterrupt, codeIOErr    = 7, 8, 9, 10
	codeCorrupt, codeFull, codeCantOpen, codeProtocol    = 11, 13, 14, 15
	codeSchema, codeTooBig, codeConstraint, codeMismatch = 17, 18, 19, 20
	codeAuth, codeNotADB                                 = 23, 26
	codeConstraintPrimaryKey, codeConstraintUnique       = 1555, 2067
	codeConstraintRowID                                  = 2579
)

func (dialect) Classify(err error) sqlbatch.Class {
	if c, ok := classifyCommon(err); ok {
		return c
	}
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return sqlbatch.Unknown
	}
	switch code := coded.Code(); code {
	case codeConstraintPrimaryKey, codeConstraintUnique, codeConstraintRowID:
		return sqlbatch.Duplicate
	default:
		switch code & 0xff {
		case codeAbort, codeBusy, codeLocked, codeNoMem, codeInterrupt, codeProtocol, codeSchema:
			return sqlbatch.RolledBack
		case codeFull, codeCantOpen:
			return sqlbatch.Refused
		case codeConstraint, codeTooBig, codeMismatch:
			return sqlbatch.BadRow
		case codeError:
			// SQLite has no separate code for a missing table, for a connection that is already in a transaction, or for a
			// function that fails in a trigger. An error at run time undoes the statement.
			if ran := (*sqlbatch.RunError)(nil); errors.As(err, &ran) {
				return sqlbatch.Refused
			}
			return sqlbatch.NoSchema
		case codePerm, codeReadOnly, codeAuth, codeCorrupt, codeNotADB:
			return sqlbatch.Permanent
		case codeIOErr:
			return sqlbatch.Unknown
		}
	}
	return sqlbatch.Unknown
}
