package engine

import (
	"fmt"

	"github.com/sqlc-dev/teesql/ast"
)

// openCursor is a cursor that has been declared. Its rows are read, and locked, when it is opened, as the server does
// for a cursor that must sort.
type openCursor struct {
	node *node
	open bool
	cols []outCol
	rows []Row
	at   int
}

func (s *Session) cursor(id *ast.CursorId) (*openCursor, error) {
	name := lower(unquote(id.Name.Value))
	if c := s.cursors[name]; c != nil {
		return c, nil
	}
	return nil, sqlError(16916, "A cursor with the name '%s' does not exist.", id.Name.Value)
}

// deallocateDeclared deallocates the cursors that the running request declared, including its procedures. An error that
// ends the batch and rolls back does so; the cursors of earlier batches stay.
func (s *Session) deallocateDeclared() {
	for _, name := range s.declared {
		delete(s.cursors, name)
	}
}

func (s *Session) cursorStatement(f *frame, n *node) error {
	switch st := n.st.(type) {
	case *ast.DeclareCursorStatement:
		name := lower(st.Name.Value)
		for _, o := range st.CursorDefinition.Options {
			if o.OptionKind == "Local" {
				return errUnsupported("local cursor")
			}
		}
		if s.cursors[name] != nil {
			return sqlError(16915, "A cursor with the name '%s' already exists.", st.Name.Value)
		}
		if s.cursors == nil {
			s.cursors = map[string]*openCursor{}
		}
		s.cursors[name] = &openCursor{node: n}
		s.declared = append(s.declared, name)
		return nil
	case *ast.OpenCursorStatement:
		c, err := s.cursor(st.Cursor)
		if err != nil {
			return err
		}
		if c.open {
			return sqlError(16905, "The cursor is already open.")
		}
		c.rows, c.at = nil, -1
		_, err = s.runPlan(f, c.node, func(x *exec, p plan) (int64, error) {
			q := p.(*selectPlan).query
			c.cols = q.cols
			_, err := q.rows(x, func(row Row) (bool, error) {
				c.rows = append(c.rows, row)
				return true, nil
			})
			return 0, err
		})
		c.open = err == nil
		return err
	case *ast.FetchCursorStatement:
		return s.fetch(f, st)
	case *ast.CloseCursorStatement:
		c, err := s.cursor(st.Cursor)
		if err != nil {
			return err
		}
		if !c.open {
			return sqlError(16917, "Cursor is not open.")
		}
		c.open, c.rows = false, nil
		return nil
	case *ast.DeallocateCursorStatement:
		if _, err := s.cursor(st.Cursor); err != nil {
			return err
		}
		delete(s.cursors, lower(unquote(st.Cursor.Name.Value)))
		return nil
	}
	return errUnsupported(fmt.Sprintf("%T", n.st))
}

func (s *Session) fetch(f *frame, st *ast.FetchCursorStatement) error {
	c, err := s.cursor(st.Cursor)
	if err != nil {
		return err
	}
	if !c.open {
		return sqlError(16917, "Cursor is not open.")
	}
	if st.FetchType != nil && st.FetchType.Orientation != "" && st.FetchType.Orientation != "Next" {
		return errUnsupported("FETCH " + st.FetchType.Orientation)
	}
	if c.at < len(c.rows) {
		c.at++
	}
	s.fetchStatus = 0
	if c.at >= len(c.rows) {
		s.fetchStatus = -1
	}
	if len(st.IntoVariables) != len(c.cols) {
		return sqlError(16924, "Cursorfetch: The number of variables declared in the INTO list must match that of selected columns.")
	}
	if s.fetchStatus != 0 {
		return nil
	}
	for i, e := range st.IntoVariables {
		ref, ok := e.(*ast.VariableReference)
		if !ok {
			return errUnsupported("FETCH INTO")
		}
		v := f.batch.variable(ref.Name)
		if v == nil || v.table != nil {
			return errUndeclared(ref.Name)
		}
		val, err := convert(c.rows[c.at][i], c.cols[i].typ, v.typ, 0)
		if err != nil {
			return err
		}
		f.vars[v.at] = val
	}
	return nil
}
