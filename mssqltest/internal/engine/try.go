package engine

import (
	"errors"
	"fmt"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// caught is an error before it reaches the CATCH of the TRY in which it occurred: the client has not received it.
type caught struct{ err *sqltype.Error }

func (c caught) Error() string { return fmt.Sprintf("engine: caught: %v", c.err) }

// runTry runs the first list. For the first error that it can catch, it runs the second list.
func (s *Session) runTry(f *frame, n *node) (flow, error) {
	s.tries++
	fl, err := s.runList(f, n.kids[0])
	s.tries--
	var c caught
	if err == nil || !errors.As(err, &c) {
		return fl, err
	}
	was := s.caught
	s.caught = c.err
	defer func() { s.caught = was }()
	return s.runList(f, n.kids[1])
}

// catches reports whether a TRY catches an error. Errors found when a statement is compiled are not caught at their own
// level. An error that would doom the transaction, so that the CATCH could only roll it back, ends the batch here, as
// if there were no TRY.
func (s *Session) catches(e *sqltype.Error) bool {
	return s.tries > 0 && e.Class < 20 && !endsScope(e) && !rollsBack(e) && !(s.set.xactAbort && s.tx != nil)
}

// throwAgain is THROW without arguments.
func (s *Session) throwAgain() error {
	if s.caught == nil {
		return severity(15, 10704, "To rethrow an error, a THROW statement must be used inside a CATCH block. Insert the THROW statement inside a CATCH block, or add error parameters to the THROW statement.")
	}
	return s.caught
}

// errorNumber is ERROR_NUMBER(): NULL outside of a CATCH.
func errorNumber(s *Session) sqltype.Value {
	if s.caught == nil {
		return nil
	}
	return int64(s.caught.Number)
}

// tryNode adds the two lists of a TRY.
func tryNode(st *ast.TryCatchStatement, add func(...ast.Statement) error) error {
	if err := add(statements(st.TryStatements)...); err != nil {
		return err
	}
	return add(statements(st.CatchStatements)...)
}
